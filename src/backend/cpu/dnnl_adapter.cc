#include "backend/cpu/dnnl_adapter.h"

#include <fmt/format.h>

#include <string_view>

#include "lockstep/backend/cpu_library.h"

namespace lockstep::cpu {
namespace {

using dnnl::algorithm;
using dnnl::engine;
using dnnl::prop_kind;
using Dims = dnnl::memory::dims;

Dims strides(const Window& w) { return {w.stride_h, w.stride_w}; }
Dims kernel(const Window& w) { return {w.kernel_h, w.kernel_w}; }
const Dims kNoDilation{0, 0};
Dims padding(const Window& w) { return {w.pad_h, w.pad_w}; }

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// Builds the description of primitive P from the arguments that both versions share: 2.x takes them as an operation
// descriptor, 3.x directly. `tail` holds the forward description, which gradients need as a hint.
template <class P, class... Tail>
struct Describe {
  template <class... Args>
  static typename P::primitive_desc from(const engine& on, const Tail&... tail, const Args&... args) {
    constexpr bool kAllowEmpty = true;
#if DNNL_VERSION_MAJOR >= 3
    return {on, args..., tail..., attributes(), kAllowEmpty};
#else
    return {typename P::desc(args...), attributes(), on, tail..., kAllowEmpty};
#endif
  }
};

// The value of an instruction set is a bit mask of all sets that it includes.
bool library_uses(dnnl::cpu_isa set) {
  const auto mask = static_cast<unsigned>(set);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & mask) == mask;
}

}  // namespace

dnnl::convolution_forward::primitive_desc describe_convolution(const engine& on, const ConvolutionDescs& d) {
  return Describe<dnnl::convolution_forward>::from(on, prop_kind::forward_training, algorithm::convolution_direct,
                                                   d.src, d.weights, d.bias, d.dst, strides(d.window),
                                                   padding(d.window), padding(d.window));
}

dnnl::convolution_backward_data::primitive_desc describe_convolution_backward_data(const engine& on,
                                                                                   const ConvolutionDescs& d) {
  const auto forward = describe_convolution(on, d);
  if (!forward) return {};
  using Hint = dnnl::convolution_forward::primitive_desc;
  return Describe<dnnl::convolution_backward_data, Hint>::from(on, forward, algorithm::convolution_direct, d.src,
                                                               d.weights, d.dst, strides(d.window), padding(d.window),
                                                               padding(d.window));
}

dnnl::convolution_backward_weights::primitive_desc describe_convolution_backward_weights(const engine& on,
                                                                                         const ConvolutionDescs& d) {
  const auto forward = describe_convolution(on, d);
  if (!forward) return {};
  using Hint = dnnl::convolution_forward::primitive_desc;
  return Describe<dnnl::convolution_backward_weights, Hint>::from(on, forward, algorithm::convolution_direct, d.src,
                                                                  d.weights, d.bias, d.dst, strides(d.window),
                                                                  padding(d.window), padding(d.window));
}

dnnl::inner_product_forward::primitive_desc describe_inner_product(const engine& on, const InnerProductDescs& d) {
  return Describe<dnnl::inner_product_forward>::from(on, prop_kind::forward_training, d.src, d.weights, d.bias, d.dst);
}

dnnl::inner_product_backward_data::primitive_desc describe_inner_product_backward_data(const engine& on,
                                                                                       const InnerProductDescs& d) {
  const auto forward = describe_inner_product(on, d);
  if (!forward) return {};
  using Hint = dnnl::inner_product_forward::primitive_desc;
  return Describe<dnnl::inner_product_backward_data, Hint>::from(on, forward, d.src, d.weights, d.dst);
}

dnnl::inner_product_backward_weights::primitive_desc describe_inner_product_backward_weights(
    const engine& on, const InnerProductDescs& d) {
  const auto forward = describe_inner_product(on, d);
  if (!forward) return {};
  using Hint = dnnl::inner_product_forward::primitive_desc;
  return Describe<dnnl::inner_product_backward_weights, Hint>::from(on, forward, d.src, d.weights, d.bias, d.dst);
}

PoolingForward::primitive_desc describe_pooling(const engine& on, const PoolingDescs& d) {
  return Describe<PoolingForward>::from(on, prop_kind::forward_training, algorithm::pooling_max, d.src, d.dst,
                                        strides(d.window), kernel(d.window), kNoDilation, padding(d.window),
                                        padding(d.window));
}

PoolingBackward::primitive_desc describe_pooling_backward(const engine& on, const PoolingDescs& d) {
  const auto forward = describe_pooling(on, d);
  if (!forward) return {};
  using Hint = PoolingForward::primitive_desc;
  return Describe<PoolingBackward, Hint>::from(on, forward, algorithm::pooling_max, d.src, d.dst, strides(d.window),
                                               kernel(d.window), kNoDilation, padding(d.window), padding(d.window));
}

dnnl::reorder::primitive_desc describe_reorder(const engine& on, const MemoryDesc& from, const MemoryDesc& to) {
  return {on, from, on, to, attributes(), true};
}

MemoryDesc with_dimensions_of(const MemoryDesc& other, const MemoryDesc& plain) {
#if DNNL_VERSION_MAJOR >= 3
  return plain.get_dims() == other.get_dims() ? plain : plain.reshape(other.get_dims());
#else
  return plain.dims() == other.dims() ? plain : plain.reshape(other.dims());
#endif
}

bool is_reference(const dnnl::primitive_desc_base& description) {
  return std::string_view(description.impl_info_str()).find("ref") != std::string_view::npos;
}

int channel_block() { return library_uses(dnnl::cpu_isa::avx512_core) ? 16 : 8; }

}  // namespace lockstep::cpu

namespace lockstep {

bool cpu_computes_bf16() { return cpu::library_uses(dnnl::cpu_isa::avx512_core_bf16); }

std::string cpu_library_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace lockstep
