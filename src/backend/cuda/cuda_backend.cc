#include "backend/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/captured_work.h"
#include "backend/cuda/check.h"
#include "backend/cuda/context.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/stream.h"
#include "backend/slices.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::cuda {
namespace {

std::vector<Format> dense_formats(Descs tensors) {
  std::vector<Format> formats;
  for (const TensorDesc& desc : tensors) formats.push_back(dense(desc.shape));
  return formats;
}

// Of a convolution or its gradient by weights: the image, and the weights, which are an input or the first output.
// Padding would change the number of groups that cuDNN takes from the shapes.
FormatChoice convolution_formats(const Window& window, Descs inputs, Descs outputs, bool gradient, int64_t groups = 1) {
  FormatChoice choice{dense_formats(inputs), dense_formats(outputs)};
  if (groups != 1) return choice;
  const bool pairs = pairs_pixels(window, inputs[0]);
  choice.inputs[0] = pairs ? paired() : for_convolution(inputs[0]);
  (gradient ? choice.outputs[0] : choice.inputs[1]) =
      pairs ? paired() : for_convolution(gradient ? outputs[0] : inputs[1]);
  return choice;
}

// The kernels of batch norm and of pools let other channels lie between those of a row.
Slices slices_of(const Op& op) {
  return std::visit(
      Overload{[](const BatchNorm&) { return kImageSlices; }, [](const BatchNormInference&) { return kImageSlices; },
               [](const OneOf<BatchNormGrad, BatchNormInferenceGrad> auto&) { return kGradientSlices; },
               [](const BatchNormStatistics&) { return Slices{.inputs = 1}; },
               [](const AvgPoolStatistics&) { return kImageSlices; },
               [](const BatchNormOfSumsGrad&) { return kGradientSlices; },
               [](const BatchNormGradSums&) { return Slices{.inputs = 2}; },
               [](const BatchNormGradOfSums&) { return kGradientSlices; },
               [](const BatchNormMaxPool&) { return kImageSlices; }, [](const MaxPoolGradSum&) { return kImageSlices; },
               [](const BatchNormMaxPoolGrad&) { return kGradientSlices; },
               [](const BatchNormMaxPoolGradOfSums&) { return kGradientSlices; },
               [](const MaxPoolGradNormSums&) { return kImageSlices; },
               [](const BatchNormGradApply&) { return kGradientSlices; }, [](const Fused auto&) { return kNoSlices; },
               [](const OneOf<MaxPool, MaxPoolGrad, AvgPool, AvgPoolGrad> auto&) { return kImageSlices; },
               [](const DenseOnly auto&) { return kNoSlices; }},
      op);
}

class CudaBackend final : public Backend {
 public:
  // `cudnn`: the handle of the planner, null when the device is only described.
  CudaBackend(CudnnHandle cudnn, std::unique_ptr<ConvPlanner> planner, bool tf32)
      : cudnn_(std::move(cudnn)), planner_(std::move(planner)), context_(*planner_, tf32) {}

  std::string_view name() const override { return "cuda"; }

  // Everything is dense except Reshape and the last layers, which have rank 2 or need the plain order. A cast produces
  // what its readers need: dense images and weights, plain gradients of float32 parameters.
  FormatChoice choose_formats(const Op& op, Descs inputs, Descs outputs) const override {
    const auto plain = [](Descs tensors) { return std::vector<Format>(tensors.size()); };
    return std::visit(
        Overload{
            [&](const Reshape&) {
              return FormatChoice{plain(inputs), plain(outputs)};
            },
            [&](const Reorder&) {
              return FormatChoice{{inputs[0].format}, {outputs[0].format}};
            },
            [&](const Cast& cast) {
              return FormatChoice{{inputs[0].format}, {cast.to == DType::f32 ? Format() : for_convolution(outputs[0])}};
            },
            [&](const PreparePixels&) {
              return FormatChoice{plain(inputs), {for_convolution(outputs[0])}};
            },
            [&](const CastMany& cast) {
              FormatChoice choice;
              for (const TensorDesc& desc : inputs) choice.inputs.push_back(desc.format);
              for (const TensorDesc& desc : outputs) {
                choice.outputs.push_back(cast.to == DType::f32 ? Format() : for_convolution(desc));
              }
              return choice;
            },
            [&](const Conv2d& conv) { return convolution_formats(conv.window, inputs, outputs, false, conv.groups); },
            [&](const Conv2dStatistics& conv) { return convolution_formats(conv.window, inputs, outputs, false); },
            [&](const Conv2dGradWeights& conv) {
              return convolution_formats(conv.window, inputs, outputs, true, conv.groups);
            },
            [&](const Conv2dNormalizedGradWeights& conv) {
              return convolution_formats(conv.window, inputs, outputs, true);
            },
            [&](const auto&) {
              return FormatChoice{dense_formats(inputs), dense_formats(outputs)};
            }},
        op);
  }
  bool reads_slice(const Op& op, size_t input) const override { return input < slices_of(op).inputs; }
  bool writes_slice(const Op& op) const override { return slices_of(op).output; }
  bool can(const Op& op, Descs inputs, Descs outputs) const override {
    std::vector<TensorDesc> in(inputs.begin(), inputs.end()), out(outputs.begin(), outputs.end());
    const FormatChoice formats = choose_formats(op, in, out);
    for (size_t i = 0; i < in.size(); ++i) in[i].format = formats.inputs[i];
    for (size_t i = 0; i < out.size(); ++i) out[i].format = formats.outputs[i];
    return std::visit(
        Overload{[&](const OneOf<Conv2dStatistics, Conv2dNormalizedGradWeights, Conv2dGradInputNorm, BatchNormMaxPool,
                                 MaxPoolGradSum, MaxPoolGradNormSums, AvgPoolStatistics> auto& o) {
                   return cuda::can(context_, o, in, out);
                 },
                 [](const auto&) { return true; }},
        op);
  }
  size_t saved_bytes(const Op& op, Descs inputs) const override { return cuda::saved_bytes(op, inputs); }
  size_t storage_bytes(const TensorDesc& desc) const override {
    if (desc.format.kind != Format::Kind::opaque) return packed_bytes(desc);
    return packed_bytes({stored_shape(desc), desc.dtype, Format::channels_last()});
  }

  PlanTuning* plan_tuning() override { return cudnn_ ? planner_.get() : nullptr; }
  std::unique_ptr<Kernel> compile(const Op& op, Descs inputs, Descs outputs) const override {
    return std::visit([&](const auto& o) { return cuda::compile(context_, o, inputs, outputs); }, op);
  }
  std::unique_ptr<Kernel> compile(const UpdateOp& op) const override { return compile_update(op); }

  Buffer allocate(size_t bytes) const override { return allocate_device(bytes); }
  Buffer allocate_pinned(size_t bytes) const override { return allocate_pinned_host(bytes); }
  bool host_addressable() const override { return false; }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) const override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<CudaStream&>(stream).get()), "a copy");
  }
  // The handle of the planner belongs to one stream at a time, the one that was made first and computes, so that plans
  // run on the handle they were made for.
  std::unique_ptr<Stream> make_stream() const override {
    return std::make_unique<CudaStream>(cudnn_.use_count() == 1 ? cudnn_ : nullptr);
  }
  std::unique_ptr<Event> make_event() const override { return std::make_unique<CudaEvent>(); }
  std::unique_ptr<Event> make_timed_event() const override { return std::make_unique<CudaEvent>(true); }
  std::unique_ptr<CapturedWork> capture(Stream& stream, const std::function<void()>& enqueue) const override {
    return cuda::capture(static_cast<CudaStream&>(stream), enqueue);
  }

 private:
  const CudnnHandle cudnn_;
  std::unique_ptr<ConvPlanner> planner_;
  Context context_;
};

}  // namespace

std::unique_ptr<Backend> make_backend_on_device(const BackendOptions& options) {
  const cudaError_t status = cudaSetDevice(options.device);
  if (status != cudaSuccess) {
    fail(ExitCode::config, "no usable GPU: device {}: {}", options.device, cudaGetErrorString(status));
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, options.device), "asking for the device's properties");
  if (properties.major < 8) {
    fail(ExitCode::config, "no usable GPU: device {} ({}) has compute capability {}.{}; 8.0 is needed", options.device,
         properties.name, properties.major, properties.minor);
  }
  log_info("GPU {}: {}, {:.1f} GB, compute capability {}.{}", options.device, properties.name,
           static_cast<double>(properties.totalGlobalMem) * 1e-9, properties.major, properties.minor);
  const std::string device =
      fmt::format("{} (compute capability {}.{})", properties.name, properties.major, properties.minor);
  const CudnnHandle cudnn = make_cudnn_handle();
  return std::make_unique<CudaBackend>(cudnn, std::make_unique<ConvPlanner>(cudnn.get(), device), options.tf32);
}

std::unique_ptr<Backend> make_backend_for_described_device(std::string_view device_as_json,
                                                           const BackendOptions& options) {
  return std::make_unique<CudaBackend>(nullptr, std::make_unique<ConvPlanner>(device_as_json), options.tf32);
}

}  // namespace lockstep::cuda
