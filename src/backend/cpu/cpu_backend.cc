#include "backend/backends.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/widened.h"
#include "backend/host.h"
#include "backend/slices.h"
#include "lockstep/backend/cpu_library.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace cpu {

FormatChoice all_plain(Descs inputs, Descs outputs) {
  return {std::vector<Format>(inputs.size()), std::vector<Format>(outputs.size())};
}

FormatChoice leading_in(Format format, size_t leading, Descs inputs, Descs outputs) {
  FormatChoice formats = all_plain(inputs, outputs);
  std::fill_n(formats.inputs.begin(), leading, format);
  formats.outputs[0] = format;
  return formats;
}

namespace {

[[noreturn]] void refuse(DType dtype) {
  fail(ExitCode::config, "the cpu backend computes in f32{}, not in {}; use the reference backend",
       cpu_computes_bf16() ? " and bf16" : " on this processor", dtype_name(dtype));
}

void expect_computable(DType dtype) {
  if (dtype != DType::f32 && !(dtype == DType::bf16 && cpu_computes_bf16())) refuse(dtype);
}

// Operations whose kernels support only float32. Tensors of bfloat16 are widened for them.
template <class Operation>
concept KnowsFloat32Only = OneOf<Operation, Dropout, LocalResponseNorm, LocalResponseNormGrad>;

// For operations that work in any format: the first `leading` inputs and the first output have that of the first input.
FormatChoice as_it_lies(size_t leading, Descs inputs, Descs outputs) {
  return leading_in(inputs[0].format, leading, inputs, outputs);
}

// For sums over channels: the first `leading` inputs have the format of the first, the sums are plain.
FormatChoice channel_sums(size_t leading, Descs inputs, Descs outputs) {
  FormatChoice formats = as_it_lies(leading, inputs, outputs);
  formats.outputs[0] = Format::plain();
  return formats;
}

FormatChoice formats_of(const Context& context, const Op& op, Descs inputs, Descs outputs) {
  return std::visit(
      Overload{[&](const OneOf<Linear, LinearGradInput, LinearGradWeights, EmbeddingBag, EmbeddingBagGrad, BatchMoments,
                               SumOverRanks, Reshape, SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad> auto&) {
                 return all_plain(inputs, outputs);
               },
               [&](const OneOf<BatchNorm, BatchNormInference, SyncBatchNorm, Relu, Dropout, LocalResponseNorm> auto&) {
                 return as_it_lies(1, inputs, outputs);
               },
               [&](const OneOf<BatchNormGrad, BatchNormInferenceGrad, SyncBatchNormGrad, ReluGrad,
                               LocalResponseNormGrad> auto&) { return as_it_lies(2, inputs, outputs); },
               [&](const Add&) { return as_it_lies(inputs.size(), inputs, outputs); },
               [&](const SyncBatchNormSums&) { return channel_sums(1, inputs, outputs); },
               [&](const SyncBatchNormGradSums&) { return channel_sums(2, inputs, outputs); },
               [&](const Reorder&) {
                 return FormatChoice{{inputs[0].format}, {outputs[0].format}};
               },
               [&](const Cast&) {
                 const bool packed = inputs[0].format.kind == Format::Kind::opaque;
                 return FormatChoice{{inputs[0].format}, {packed ? Format::plain() : inputs[0].format}};
               },
               [&](const Fused auto&) { return all_plain(inputs, outputs); },
               [&](const auto& o) { return choose_formats(context, o, inputs, outputs); }},
      op);
}

// oneDNN's primitives are slow on slices; our own loops read and write them as they do dense images.
Slices slices_of(const Op& op) {
  return std::visit(
      Overload{[](const OneOf<BatchNorm, BatchNormInference, AvgPool, AvgPoolGrad> auto&) { return kImageSlices; },
               [](const OneOf<BatchNormGrad, BatchNormInferenceGrad> auto&) { return kGradientSlices; },
               [](const OneOf<MaxPool, MaxPoolGrad> auto&) { return kNoSlices; },
               [](const DenseOnly auto&) { return kNoSlices; }, [](const Fused auto&) { return kNoSlices; }},
      op);
}

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(const BackendOptions& options) : context_(options) {
    require(options.threads > 0, "{} compute threads", options.threads);
  }

  std::string_view name() const override { return "cpu"; }

  FormatChoice choose_formats(const Op& op, Descs inputs, Descs outputs) const override {
    expect_computable(inputs[0].dtype);
    const ThreadScope scope(context_.threads);
    return formats_of(context_, op, inputs, outputs);
  }

  bool reads_slice(const Op& op, size_t input) const override { return input < slices_of(op).inputs; }
  bool writes_slice(const Op& op) const override { return slices_of(op).output; }

  bool recomputes() const override { return true; }

  size_t saved_bytes(const Op& op, Descs inputs) const override {
    const ThreadScope scope(context_.threads);
    return std::visit(
        Overload{[&](const OneOf<BatchNorm, SyncBatchNorm, MaxPool> auto& o) {
                   return cpu::saved_bytes(context_, o, inputs);
                 },
                 [](const BatchNormMaxPool&) { return size_t{0}; }, [](const SavesNothing auto&) { return size_t{0}; }},
        op);
  }

  size_t storage_bytes(const TensorDesc& desc) const override {
    if (desc.format.kind == Format::Kind::opaque) return context_.memory_desc(desc).get_size();
    return packed_bytes(desc);
  }

  std::unique_ptr<Kernel> compile(const Op& op, Descs inputs, Descs outputs) const override {
    expect_computable(inputs[0].dtype);
    expect_computable(outputs[0].dtype);
    const ThreadScope scope(context_.threads);
    return std::visit(
        Overload{[&](const KnowsFloat32Only auto& o) {
                   const auto compile_f32 = [&](Descs in, Descs out) { return cpu::compile(context_, o, in, out); };
                   return inputs[0].dtype == DType::f32 ? compile_f32(inputs, outputs)
                                                        : compile_widened(context_, inputs, outputs, compile_f32);
                 },
                 [&](const Fused auto& o) -> std::unique_ptr<Kernel> {
                   fail(ExitCode::config, "the cpu backend has no {}", op_name(o));
                 },
                 [&](const auto& o) { return cpu::compile(context_, o, inputs, outputs); }},
        op);
  }

  std::unique_ptr<Kernel> compile(const UpdateOp& op) const override {
    if (op.dtype != DType::f32) refuse(op.dtype);
    return cpu::compile(context_, op);
  }

 private:
  Context context_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options);
}

}  // namespace lockstep
