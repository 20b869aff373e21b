// What all kernels of the CUDA backend share, and the operations it has: for each its kernel.
#pragma once

#include <memory>
#include <span>

#include "backend/cuda/conv_plan.h"
#include "backend/cuda/stream.h"
#include "lockstep/backend/backend.h"
#include "lockstep/backend/update.h"

namespace lockstep::cuda {

using Descs = std::span<const TensorDesc>;

// Owned by the backend, which outlives its kernels.
struct Context {
  explicit Context(ConvPlanner& conv_planner, bool allow_tf32) : planner(conv_planner), tf32(allow_tf32) {}
  ConvPlanner& planner;
  bool tf32;
};

// How an image or a convolution's weights lie on the GPU: channels last, which is the plain order where the image has
// one pixel (the memory is the same, and so no Reorder comes between).
Format dense(const Shape& shape);

// For convolutions, images and weights of 16-bit floats with fewer than eight channels are padded with zeros to four or
// eight: then tensor cores compute the first layer, too.
constexpr Format padded() { return {Format::Kind::opaque, 1}; }  // channels last
// Those padded to four, in rows of an even number of pixels or taps, the last one of an odd row zero: two of four
// channels are one of eight, of which a convolution with stride 2 along a row is one with stride 1 (pairs_pixels).
constexpr Format paired() { return {Format::Kind::opaque, 2}; }
// The format in which a convolution reads an image or weights, and writes the gradient of weights.
Format for_convolution(const TensorDesc& desc);
// Whether a convolution of one group reads such an image in pairs.
bool pairs_pixels(const Window& window, const TensorDesc& image);
// The shape in memory, padding included, and the window over it.
Shape stored_shape(const TensorDesc& desc);
Window stored_window(const Window& window, const TensorDesc& image);

// Throws Error(config) for element types that kernels do not have.
void expect_element(const Op& op, DType dtype);

template <class T = void>
const T* input(const KernelArgs& args, size_t i) {
  return static_cast<const T*>(args.inputs[i]);
}
template <class T = void>
T* output(const KernelArgs& args, size_t i) {
  return static_cast<T*>(args.outputs[i]);
}

// The scratch memory of sums over rows, at the beginning of the workspace.
struct SumsMemory sums_memory(const KernelArgs& args);

// An image as rows of channels, which our own kernels work on. Requires that it lies channels last.
struct Rows rows_of(const TensorDesc& desc);
// Elements from a row to the next, of channel slices too.
int64_t row_elements(const TensorDesc& desc);
// Requires that all tensors have one description, of an element type that kernels have.
void expect_alike(const Op& op, Descs tensors);

// The vectors of a batch norm stay float32 whatever the images are.
void expect_float_vectors(const Op& op, Descs vectors);
// An image and its gradient, each of which may be a slice.
void expect_gradient(const Op& op, const TensorDesc& x, const TensorDesc& dy);

// Bytes of the operation's `saved` output, 0 if it has none.
size_t saved_bytes(const Op& op, Descs inputs);

// A kernel from a callable body(args, stream); launch errors of what it enqueues are thrown.
void check_launch(std::string_view implementation);
template <class Body>
class LaunchKernel final : public Kernel {
 public:
  LaunchKernel(std::string implementation, Body body, size_t workspace_bytes)
      : implementation_(std::move(implementation)), body_(std::move(body)), workspace_bytes_(workspace_bytes) {}
  void run(const KernelArgs& args) const override {
    body_(args, stream_of(args).get());
    check_launch(implementation_);
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string implementation() const override { return implementation_; }

 private:
  std::string implementation_;
  Body body_;
  size_t workspace_bytes_;
};
template <class Body>
std::unique_ptr<Kernel> make_launch_kernel(std::string implementation, Body body, size_t workspace_bytes = 0) {
  return std::make_unique<LaunchKernel<Body>>(std::move(implementation), std::move(body), workspace_bytes);
}

// conv2d.cc
std::unique_ptr<Kernel> compile(const Context& context, const Conv2d& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradInput& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradWeights& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Conv2dStatistics& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Conv2dNormalizedGradWeights& op, Descs inputs,
                                Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradInputNorm& op, Descs inputs, Descs outputs);
// Whether cuDNN has an engine, for tensors in the formats that the backend would choose.
bool can(const Context& context, const Conv2dStatistics& op, Descs inputs, Descs outputs);
bool can(const Context& context, const Conv2dNormalizedGradWeights& op, Descs inputs, Descs outputs);
bool can(const Context& context, const Conv2dGradInputNorm& op, Descs inputs, Descs outputs);

// linear.cc
std::unique_ptr<Kernel> compile(const Context& context, const Linear& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const LinearGradInput& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const LinearGradWeights& op, Descs inputs, Descs outputs);

// embedding.cc
std::unique_ptr<Kernel> compile(const Context& context, const EmbeddingBag& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const EmbeddingBagGrad& op, Descs inputs, Descs outputs);

// batch_norm.cc, batch_norm_sums.cc
std::unique_ptr<Kernel> compile(const Context& context, const BatchNorm& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormInference& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormInferenceGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchMoments& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormOfSums& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormStatistics& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormOfSumsGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormGradSums& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormGradOfSums& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const AvgPoolStatistics& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormMaxPool& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormMaxPoolGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const MaxPoolGradNormSums& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormMaxPoolGradOfSums& op, Descs inputs,
                                Descs outputs);
bool can(const Context& context, const MaxPoolGradNormSums& op, Descs inputs, Descs outputs);
bool can(const Context& context, const AvgPoolStatistics& op, Descs inputs, Descs outputs);
bool can(const Context& context, const BatchNormMaxPool& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormGradApply& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNormSums& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNorm& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNormGradSums& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNormGrad& op, Descs inputs, Descs outputs);

// pool.cc
std::unique_ptr<Kernel> compile(const Context& context, const MaxPool& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const MaxPoolGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const MaxPoolGradSum& op, Descs inputs, Descs outputs);
bool can(const Context& context, const MaxPoolGradSum& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const AvgPool& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const AvgPoolGrad& op, Descs inputs, Descs outputs);

// local_response_norm.cc
std::unique_ptr<Kernel> compile(const Context& context, const LocalResponseNorm& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const LocalResponseNormGrad& op, Descs inputs, Descs outputs);

// pointwise.cc
std::unique_ptr<Kernel> compile(const Context& context, const Relu& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const ReluGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Add& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Dropout& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const PreparePixels& op, Descs inputs, Descs outputs);

// placement.cc
std::unique_ptr<Kernel> compile(const Context& context, const Concat& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Slice& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Reshape& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Reorder& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Cast& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const CastMany& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SumOverRanks& op, Descs inputs, Descs outputs);

// loss.cc
std::unique_ptr<Kernel> compile(const Context& context, const SoftmaxCrossEntropy& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SoftmaxCrossEntropyGrad& op, Descs inputs, Descs outputs);

// update.cc
std::unique_ptr<Kernel> compile_update(const UpdateOp& op);

}  // namespace lockstep::cuda
