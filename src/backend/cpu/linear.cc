// Fully connected layers, by oneDNN's inner product on plain matrices.
#include "backend/cpu/kernels.h"
#include "backend/cpu/primitive_kernel.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

MemoryDesc vector_desc(const Context& context, int64_t size, DType dtype) {
  return context.memory_desc({{size}, dtype, Format::plain()});
}

// Returns the layout of the bias or its gradient; a zero descriptor if there is none.
MemoryDesc bias_desc(const Context& context, bool bias, Descs tensors) {
  return bias ? context.memory_desc(tensors.back()) : MemoryDesc();
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const Linear& op, Descs inputs, Descs outputs) {
  const auto d = describe_inner_product(context.engine, {.src = context.memory_desc(inputs[0]),
                                                         .weights = context.memory_desc(inputs[1]),
                                                         .bias = bias_desc(context, op.bias, inputs),
                                                         .dst = context.memory_desc(outputs[0])});
  require(static_cast<bool>(d), "oneDNN has no Linear for {}", inputs[1].to_string());
  PrimitiveArguments arguments{.inputs = {{DNNL_ARG_SRC, d.src_desc()}, {DNNL_ARG_WEIGHTS, d.weights_desc()}},
                               .outputs = {{DNNL_ARG_DST, d.dst_desc()}}};
  if (op.bias) arguments.inputs.push_back({DNNL_ARG_BIAS, d.bias_desc()});
  return make_primitive_kernel<dnnl::inner_product_forward>(context, d, arguments);
}

std::unique_ptr<Kernel> compile(const Context& context, const LinearGradInput&, Descs inputs, Descs outputs) {
  const auto d = describe_inner_product_backward_data(
      context.engine, {.src = context.memory_desc(outputs[0]),
                       .weights = context.memory_desc(inputs[1]),
                       .bias = vector_desc(context, inputs[1].shape[0], inputs[1].dtype),
                       .dst = context.memory_desc(inputs[0])});
  require(static_cast<bool>(d), "oneDNN has no LinearGradInput for {}", inputs[1].to_string());
  return make_primitive_kernel<dnnl::inner_product_backward_data>(
      context, d,
      {.inputs = {{DNNL_ARG_DIFF_DST, d.diff_dst_desc()}, {DNNL_ARG_WEIGHTS, d.weights_desc()}},
       .outputs = {{DNNL_ARG_DIFF_SRC, d.diff_src_desc()}}});
}

std::unique_ptr<Kernel> compile(const Context& context, const LinearGradWeights& op, Descs inputs, Descs outputs) {
  const auto d = describe_inner_product_backward_weights(context.engine, {.src = context.memory_desc(inputs[0]),
                                                                          .weights = context.memory_desc(outputs[0]),
                                                                          .bias = bias_desc(context, op.bias, outputs),
                                                                          .dst = context.memory_desc(inputs[1])});
  require(static_cast<bool>(d), "oneDNN has no LinearGradWeights for {}", outputs[0].to_string());
  PrimitiveArguments arguments{.inputs = {{DNNL_ARG_SRC, d.src_desc()}, {DNNL_ARG_DIFF_DST, d.diff_dst_desc()}},
                               .outputs = {{DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc()}}};
  if (op.bias) arguments.outputs.push_back({DNNL_ARG_DIFF_BIAS, d.diff_bias_desc()});
  return make_primitive_kernel<dnnl::inner_product_backward_weights>(context, d, arguments);
}

}  // namespace lockstep::cpu
