// Pooling, by oneDNN. The places of the maxima are stored in the order of the format, so forward and gradient choose
// the format by the same rule, which asks the shapes alone.
#include "backend/cpu/kernels.h"
#include "backend/cpu/primitive_kernel.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

dnnl::algorithm average(bool count_include_pad) {
  return count_include_pad ? dnnl::algorithm::pooling_avg_include_padding
                           : dnnl::algorithm::pooling_avg_exclude_padding;
}

dnnl::algorithm algorithm(const MaxPool&) { return dnnl::algorithm::pooling_max; }
dnnl::algorithm algorithm(const MaxPoolGrad&) { return dnnl::algorithm::pooling_max; }
dnnl::algorithm algorithm(const AvgPool& op) { return average(op.count_include_pad); }
dnnl::algorithm algorithm(const AvgPoolGrad& op) { return average(op.count_include_pad); }

PoolingDescs pooling(const Context& context, dnnl::algorithm algorithm, const Window& window, const TensorDesc& src,
                     const TensorDesc& dst) {
  return {algorithm, context.memory_desc(src), context.memory_desc(dst), window};
}

Format preferred(const Context& context, dnnl::algorithm algorithm, const Window& window, const Shape& src,
                 const Shape& dst) {
  for (const Format format : {context.blocked, Format::plain()}) {
    const auto d = describe_pooling_backward(
        context.engine, pooling(context, algorithm, window, {src, DType::f32, format}, {dst, DType::f32, format}));
    if (d && !is_reference(d)) return format;
  }
  return Format::plain();
}

template <class PoolOp>
FormatChoice choose_forward(const Context& context, const PoolOp& op, Descs in, Descs out) {
  const Format format = preferred(context, algorithm(op), op.window, in[0].shape, out[0].shape);
  return leading_in(format, 1, in, out);
}

template <class PoolOp>
FormatChoice choose_backward(const Context& context, const PoolOp& op, Descs in, Descs out) {
  const Format format = preferred(context, algorithm(op), op.window, op.input, in[0].shape);
  return leading_in(format, 1, in, out);
}

template <class PoolOp>
PoolingForward::primitive_desc describe_forward(const Context& context, const PoolOp& op, const TensorDesc& x,
                                                const TensorDesc& y) {
  auto d = describe_pooling(context.engine, pooling(context, algorithm(op), op.window, x, y));
  require(static_cast<bool>(d), "oneDNN has no {} for {}", op_name(op), x.to_string());
  return d;
}

template <class PoolOp>
PoolingBackward::primitive_desc describe_backward(const Context& context, const PoolOp& op, Descs in, Descs out) {
  auto d = describe_pooling_backward(context.engine, pooling(context, algorithm(op), op.window, out[0], in[0]));
  require(static_cast<bool>(d), "oneDNN has no {} for {}", op_name(op), in[0].to_string());
  return d;
}

}  // namespace

FormatChoice choose_formats(const Context& context, const MaxPool& op, Descs inputs, Descs outputs) {
  return choose_forward(context, op, inputs, outputs);
}
FormatChoice choose_formats(const Context& context, const MaxPoolGrad& op, Descs inputs, Descs outputs) {
  return choose_backward(context, op, inputs, outputs);
}
FormatChoice choose_formats(const Context& context, const AvgPool& op, Descs inputs, Descs outputs) {
  return choose_forward(context, op, inputs, outputs);
}
FormatChoice choose_formats(const Context& context, const AvgPoolGrad& op, Descs inputs, Descs outputs) {
  return choose_backward(context, op, inputs, outputs);
}

size_t saved_bytes(const Context& context, const MaxPool& op, Descs inputs) {
  TensorDesc y = infer(op, inputs)[0];
  y.format = inputs[0].format;
  return describe_forward(context, op, inputs[0], y).workspace_desc().get_size();
}

std::unique_ptr<Kernel> compile(const Context& context, const MaxPool& op, Descs inputs, Descs outputs) {
  const auto d = describe_forward(context, op, inputs[0], outputs[0]);
  return make_primitive_kernel<PoolingForward>(
      context, d,
      {.inputs = {{DNNL_ARG_SRC, d.src_desc()}},
       .outputs = {{DNNL_ARG_DST, d.dst_desc()}, {DNNL_ARG_WORKSPACE, d.workspace_desc()}}});
}

std::unique_ptr<Kernel> compile(const Context& context, const MaxPoolGrad& op, Descs inputs, Descs outputs) {
  const auto d = describe_backward(context, op, inputs, outputs);
  return make_primitive_kernel<PoolingBackward>(
      context, d,
      {.inputs = {{DNNL_ARG_DIFF_DST, d.diff_dst_desc()}, {DNNL_ARG_WORKSPACE, d.workspace_desc()}},
       .outputs = {{DNNL_ARG_DIFF_SRC, d.diff_src_desc()}}});
}

std::unique_ptr<Kernel> compile(const Context& context, const AvgPool& op, Descs inputs, Descs outputs) {
  const auto d = describe_forward(context, op, inputs[0], outputs[0]);
  return make_primitive_kernel<PoolingForward>(
      context, d, {.inputs = {{DNNL_ARG_SRC, d.src_desc()}}, .outputs = {{DNNL_ARG_DST, d.dst_desc()}}});
}

std::unique_ptr<Kernel> compile(const Context& context, const AvgPoolGrad& op, Descs inputs, Descs outputs) {
  const auto d = describe_backward(context, op, inputs, outputs);
  return make_primitive_kernel<PoolingBackward>(
      context, d,
      {.inputs = {{DNNL_ARG_DIFF_DST, d.diff_dst_desc()}}, .outputs = {{DNNL_ARG_DIFF_SRC, d.diff_src_desc()}}});
}

}  // namespace lockstep::cpu
