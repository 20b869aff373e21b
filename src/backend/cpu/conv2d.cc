// Convolution and its two gradients: by Winograd's method where that is faster, otherwise by oneDNN, with activations
// in blocks of channels and weights in the library's own layout.
#include "backend/cpu/kernels.h"
#include "backend/cpu/primitive_kernel.h"
#include "backend/cpu/winograd.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

// The tensors of a convolution, whichever of them the operation computes.
struct Roles {
  TensorDesc src, weights, dst;
  bool bias;
  Window window;
  int64_t groups;
};

Roles roles(const Conv2d& op, Descs in, Descs out) { return {in[0], in[1], out[0], op.bias, op.window, op.groups}; }
Roles roles(const Conv2dGradInput& op, Descs in, Descs out) {
  return {out[0], in[1], in[0], false, op.window, op.groups};
}
Roles roles(const Conv2dGradWeights& op, Descs in, Descs out) {
  return {in[0], out[0], in[1], op.bias, op.window, op.groups};
}

FormatChoice choice(const Conv2d& op, Format src, Format weights, Format dst) {
  FormatChoice formats{{src, weights}, {dst}};
  if (op.bias) formats.inputs.push_back(Format::plain());
  return formats;
}
FormatChoice choice(const Conv2dGradInput&, Format src, Format weights, Format dst) { return {{dst, weights}, {src}}; }
FormatChoice choice(const Conv2dGradWeights& op, Format src, Format weights, Format dst) {
  FormatChoice formats{{src, dst}, {weights}};
  if (op.bias) formats.outputs.push_back(Format::plain());
  return formats;
}

auto describe(const Conv2d&, const dnnl::engine& engine, const ConvolutionDescs& d) {
  return describe_convolution(engine, d);
}
auto describe(const Conv2dGradInput&, const dnnl::engine& engine, const ConvolutionDescs& d) {
  return describe_convolution_backward_data(engine, d);
}
auto describe(const Conv2dGradWeights&, const dnnl::engine& engine, const ConvolutionDescs& d) {
  return describe_convolution_backward_weights(engine, d);
}

MemoryDesc weights_desc(const dnnl::convolution_forward::primitive_desc& d) { return d.weights_desc(); }
MemoryDesc weights_desc(const dnnl::convolution_backward_data::primitive_desc& d) { return d.weights_desc(); }
MemoryDesc weights_desc(const dnnl::convolution_backward_weights::primitive_desc& d) { return d.diff_weights_desc(); }

ConvolutionDescs memory_descs(const Context& context, const Roles& r, const MemoryDesc& weights) {
  MemoryDesc bias;
  if (r.bias) bias = context.memory_desc({{r.dst.shape.c()}, r.dst.dtype, Format::plain()});
  return {context.memory_desc(r.src), weights, bias, context.memory_desc(r.dst), r.window};
}

WinogradConvolution winograd(const Roles& r) { return {r.src, r.dst, r.window, r.bias}; }
bool takes_winograd(const Context& context, const Roles& r) {
  return r.groups == 1 && winograd_pays(context, winograd(r));
}

// The formats of source and destination to try, best first. Reading an image of a few channels in its plain
// format is cheaper than padding it to a block.
std::vector<std::pair<Format, Format>> candidates(const Context& context, const TensorDesc& src) {
  const Format plain = Format::plain(), blocked = context.blocked;
  const std::pair image{plain, blocked}, usual{blocked, blocked}, last{plain, plain};
  if (src.format == plain && src.shape.c() < 4) return {image, usual, last};
  return {usual, image, last};
}

template <class ConvOp>
FormatChoice choose(const Context& context, const ConvOp& op, Descs inputs, Descs outputs) {
  Roles r = roles(op, inputs, outputs);
  if (takes_winograd(context, r)) return choice(op, context.blocked, Format::plain(), context.blocked);
  const MemoryDesc any_weights = Context::any_desc(r.weights, r.groups);
  FormatChoice fallback;
  for (const auto& [src, dst] : candidates(context, r.src)) {
    r.src.format = src;
    r.dst.format = dst;
    const auto description = describe(op, context.engine, memory_descs(context, r, any_weights));
    if (!description) continue;
    const Format weights = context.format_of(weights_desc(description), r.weights, r.groups);
    FormatChoice formats = choice(op, src, weights, dst);
    if (!is_reference(description)) return formats;
    if (fallback.inputs.empty()) fallback = std::move(formats);
  }
  require(!fallback.inputs.empty(), "oneDNN has no {} for {}", op_name(op), r.src.to_string());
  return fallback;
}

// Null if Winograd's method is not faster.
template <class ConvOp>
std::unique_ptr<Kernel> compile_winograd(const Context& context, const ConvOp& op, Descs inputs, Descs outputs,
                                         decltype(make_winograd_forward) make) {
  const Roles r = roles(op, inputs, outputs);
  const bool blocked = r.src.format == context.blocked && r.dst.format == context.blocked;
  if (!blocked || r.weights.format != Format::plain() || !takes_winograd(context, r)) return nullptr;
  return make(context, winograd(r));
}

template <class ConvOp>
auto describe_compiled(const Context& context, const ConvOp& op, Descs inputs, Descs outputs) {
  const Roles r = roles(op, inputs, outputs);
  auto description = describe(op, context.engine, memory_descs(context, r, context.memory_desc(r.weights, r.groups)));
  require(static_cast<bool>(description), "oneDNN has no {} for {}, {} -> {}", op_name(op), r.src.to_string(),
          r.weights.to_string(), r.dst.to_string());
  return description;
}

}  // namespace

FormatChoice choose_formats(const Context& context, const Conv2d& op, Descs inputs, Descs outputs) {
  return choose(context, op, inputs, outputs);
}
FormatChoice choose_formats(const Context& context, const Conv2dGradInput& op, Descs inputs, Descs outputs) {
  return choose(context, op, inputs, outputs);
}
FormatChoice choose_formats(const Context& context, const Conv2dGradWeights& op, Descs inputs, Descs outputs) {
  return choose(context, op, inputs, outputs);
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2d& op, Descs inputs, Descs outputs) {
  if (auto kernel = compile_winograd(context, op, inputs, outputs, make_winograd_forward)) return kernel;
  const auto d = describe_compiled(context, op, inputs, outputs);
  PrimitiveArguments arguments{.inputs = {{DNNL_ARG_SRC, d.src_desc()}, {DNNL_ARG_WEIGHTS, d.weights_desc()}},
                               .outputs = {{DNNL_ARG_DST, d.dst_desc()}}};
  if (op.bias) arguments.inputs.push_back({DNNL_ARG_BIAS, d.bias_desc()});
  return make_primitive_kernel<dnnl::convolution_forward>(context, d, arguments);
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradInput& op, Descs inputs, Descs outputs) {
  if (auto kernel = compile_winograd(context, op, inputs, outputs, make_winograd_input_gradient)) return kernel;
  const auto d = describe_compiled(context, op, inputs, outputs);
  return make_primitive_kernel<dnnl::convolution_backward_data>(
      context, d,
      {.inputs = {{DNNL_ARG_DIFF_DST, d.diff_dst_desc()}, {DNNL_ARG_WEIGHTS, d.weights_desc()}},
       .outputs = {{DNNL_ARG_DIFF_SRC, d.diff_src_desc()}}});
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradWeights& op, Descs inputs, Descs outputs) {
  if (auto kernel = compile_winograd(context, op, inputs, outputs, make_winograd_weights_gradient)) return kernel;
  const auto d = describe_compiled(context, op, inputs, outputs);
  PrimitiveArguments arguments{.inputs = {{DNNL_ARG_SRC, d.src_desc()}, {DNNL_ARG_DIFF_DST, d.diff_dst_desc()}},
                               .outputs = {{DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc()}}};
  if (op.bias) arguments.outputs.push_back({DNNL_ARG_DIFF_BIAS, d.diff_bias_desc()});
  return make_primitive_kernel<dnnl::convolution_backward_weights>(context, d, arguments);
}

}  // namespace lockstep::cpu
