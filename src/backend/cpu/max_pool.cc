// Maximum pooling, by oneDNN. The places of the maxima are stored in the order of the format, so forward and gradient
// choose the format by the same rule, which asks the shapes alone.
#include <algorithm>
#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/primitive_kernel.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

PoolingDescs pooling(const Context& context, const Window& window, const TensorDesc& src, const TensorDesc& dst) {
  return {context.memory_desc(src), context.memory_desc(dst), window};
}

Format preferred(const Context& context, const Window& window, const Shape& src, const Shape& dst) {
  for (const Format format : {context.blocked, Format::plain()}) {
    const auto d = describe_pooling_backward(
        context.engine, pooling(context, window, {src, DType::f32, format}, {dst, DType::f32, format}));
    if (d && !is_reference(d)) return format;
  }
  return Format::plain();
}

PoolingForward::primitive_desc describe_forward(const Context& context, const MaxPool& op, const TensorDesc& x,
                                                const TensorDesc& y) {
  auto d = describe_pooling(context.engine, pooling(context, op.window, x, y));
  require(static_cast<bool>(d), "oneDNN has no {} for {}", op_name(op), x.to_string());
  return d;
}

LOCKSTEP_VECTORIZED bool holds_nan(const float* x, int64_t count) {
  int found = 0;
#pragma omp simd reduction(| : found)
  for (int64_t i = 0; i < count; ++i) found |= x[i] != x[i];
  return found != 0;
}

// oneDNN's maximum passes over a NaN, which would hide a diverged run: a sample with one gets nothing but NaN.
class MaxPoolKernel final : public Kernel {
 public:
  MaxPoolKernel(const Context& context, std::unique_ptr<Kernel> pool, const TensorDesc& x, const TensorDesc& y)
      : pool_(std::move(pool)),
        threads_(context.threads),
        samples_(x.shape.n()),
        read_(ChannelLayout(x).sample_elements),
        written_(ChannelLayout(y).sample_elements) {}

  void run(const KernelArgs& args) const override {
    pool_->run(args);
    parallel_ranges(threads_, samples_, 1, [&](Range range, int) {
      for (int64_t n = range.begin; n < range.end; ++n) {
        if (!holds_nan(input(args, 0) + n * read_, read_)) continue;
        std::fill_n(output(args, 0) + n * written_, written_, std::numeric_limits<float>::quiet_NaN());
      }
    });
  }
  size_t workspace_bytes() const override { return pool_->workspace_bytes(); }
  std::string implementation() const override { return pool_->implementation(); }

 private:
  std::unique_ptr<Kernel> pool_;
  int threads_;
  int64_t samples_, read_, written_;  // elements of a sample
};

}  // namespace

FormatChoice choose_formats(const Context& context, const MaxPool& op, Descs inputs, Descs outputs) {
  return leading_in(preferred(context, op.window, inputs[0].shape, outputs[0].shape), 1, inputs, outputs);
}
FormatChoice choose_formats(const Context& context, const MaxPoolGrad& op, Descs inputs, Descs outputs) {
  return leading_in(preferred(context, op.window, op.input, inputs[0].shape), 1, inputs, outputs);
}

size_t saved_bytes(const Context& context, const MaxPool& op, Descs inputs) {
  TensorDesc y = infer(op, inputs)[0];
  y.format = inputs[0].format;
  return describe_forward(context, op, inputs[0], y).workspace_desc().get_size();
}

std::unique_ptr<Kernel> compile(const Context& context, const MaxPool& op, Descs inputs, Descs outputs) {
  const auto d = describe_forward(context, op, inputs[0], outputs[0]);
  auto pool = make_primitive_kernel<PoolingForward>(
      context, d,
      {.inputs = {{DNNL_ARG_SRC, d.src_desc()}},
       .outputs = {{DNNL_ARG_DST, d.dst_desc()}, {DNNL_ARG_WORKSPACE, d.workspace_desc()}}});
  return std::make_unique<MaxPoolKernel>(context, std::move(pool), inputs[0], outputs[0]);
}

std::unique_ptr<Kernel> compile(const Context& context, const MaxPoolGrad& op, Descs inputs, Descs outputs) {
  const auto d = describe_pooling_backward(context.engine, pooling(context, op.window, outputs[0], inputs[0]));
  require(static_cast<bool>(d), "oneDNN has no {} for {}", op_name(op), inputs[0].to_string());
  return make_primitive_kernel<PoolingBackward>(
      context, d,
      {.inputs = {{DNNL_ARG_DIFF_DST, d.diff_dst_desc()}, {DNNL_ARG_WORKSPACE, d.workspace_desc()}},
       .outputs = {{DNNL_ARG_DIFF_SRC, d.diff_src_desc()}}});
}

}  // namespace lockstep::cpu
