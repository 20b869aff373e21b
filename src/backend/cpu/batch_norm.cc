// Batch norm with the ReLU that may follow it, by oneDNN, in the format that the input has.
#include "backend/cpu/kernels.h"
#include "backend/cpu/primitive_kernel.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

using Argument = PrimitiveArgument;

MemoryDesc channels_desc(const Context& context, const TensorDesc& x) {
  return context.memory_desc({{x.shape.c()}, DType::f32, Format::plain()});
}

template <class Op>
BatchNormDescs descs(const Context& context, const Op& op, const TensorDesc& x) {
  return {context.memory_desc(x), op.epsilon, op.relu};
}

// The mask that the fused ReLU leaves for the gradient.
template <class Description>
Argument mask(const Description& d, bool relu) {
  return relu ? Argument{DNNL_ARG_WORKSPACE, d.workspace_desc()} : Argument{};
}

}  // namespace

size_t saved_bytes(const Context& context, const BatchNorm& op, Descs inputs) {
  if (!op.relu) return 0;
  const auto d = describe_batch_norm(context.engine, descs(context, op, inputs[0]));
  require(static_cast<bool>(d), "oneDNN has no BatchNorm for {}", inputs[0].to_string());
  return d.workspace_desc().get_size();
}

std::unique_ptr<Kernel> compile(const Context& context, const BatchNorm& op, Descs inputs, Descs) {
  const auto d = describe_batch_norm(context.engine, descs(context, op, inputs[0]));
  require(static_cast<bool>(d), "oneDNN has no BatchNorm for {}", inputs[0].to_string());
  const MemoryDesc channels = channels_desc(context, inputs[0]);
  return make_primitive_kernel<dnnl::batch_normalization_forward>(
      context, d,
      {.inputs = {{DNNL_ARG_SRC, d.src_desc()}, {DNNL_ARG_SCALE, channels}, {DNNL_ARG_SHIFT, channels}},
       .outputs = {
           {DNNL_ARG_DST, d.dst_desc()}, {DNNL_ARG_MEAN, channels}, {DNNL_ARG_VARIANCE, channels}, mask(d, op.relu)}});
}

std::unique_ptr<Kernel> compile(const Context& context, const BatchNormGrad& op, Descs inputs, Descs) {
  const auto d = describe_batch_norm_backward(context.engine, descs(context, op, inputs[0]));
  require(static_cast<bool>(d), "oneDNN has no BatchNormGrad for {}", inputs[0].to_string());
  const MemoryDesc channels = channels_desc(context, inputs[0]);
  // Where a shift is asked for, any will do: it gets the scale.
  const int shift = kBatchNormBackwardTakesShift ? DNNL_ARG_SHIFT : Argument::kUnused;
  return make_primitive_kernel<dnnl::batch_normalization_backward>(
      context, d,
      {.inputs = {{DNNL_ARG_SRC, d.src_desc()},
                  {DNNL_ARG_DIFF_DST, d.diff_dst_desc()},
                  {DNNL_ARG_SCALE, channels, shift},
                  {DNNL_ARG_MEAN, channels},
                  {DNNL_ARG_VARIANCE, channels},
                  mask(d, op.relu)},
       .outputs = {
           {DNNL_ARG_DIFF_SRC, d.diff_src_desc()}, {DNNL_ARG_DIFF_SCALE, channels}, {DNNL_ARG_DIFF_SHIFT, channels}}});
}

std::unique_ptr<Kernel> compile(const Context& context, const BatchNormInference& op, Descs inputs, Descs) {
  const auto d = describe_batch_norm_inference(context.engine, descs(context, op, inputs[0]));
  require(static_cast<bool>(d), "oneDNN has no BatchNormInference for {}", inputs[0].to_string());
  const MemoryDesc channels = channels_desc(context, inputs[0]);
  return make_primitive_kernel<dnnl::batch_normalization_forward>(context, d,
                                                                  {.inputs = {{DNNL_ARG_SRC, d.src_desc()},
                                                                              {DNNL_ARG_SCALE, channels},
                                                                              {DNNL_ARG_SHIFT, channels},
                                                                              {DNNL_ARG_MEAN, channels},
                                                                              {DNNL_ARG_VARIANCE, channels}},
                                                                   .outputs = {{DNNL_ARG_DST, d.dst_desc()}}});
}

}  // namespace lockstep::cpu
