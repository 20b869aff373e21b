// The only file that knows which oneDNN is installed: 2.x (operation descriptors) or 3.x. Every function describes one
// primitive, for which the caller provides scratch memory. If the library has no implementation for these tensors, the
// description is empty (converts to false).
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "lockstep/ops/ops.h"

namespace lockstep::cpu {

using MemoryDesc = dnnl::memory::desc;
#if DNNL_VERSION_MAJOR >= 3
using PoolingForward = dnnl::pooling_forward;
using PoolingBackward = dnnl::pooling_backward;
#else
using PoolingForward = dnnl::pooling_v2_forward;
using PoolingBackward = dnnl::pooling_v2_backward;
#endif

// The tensors of a convolution [N,I,H,W] -> [N,O,H',W'], or their gradients. `bias` is a zero descriptor if there is
// none. A tensor in format `any` leaves its layout to the library.
struct ConvolutionDescs {
  MemoryDesc src, weights, bias, dst;
  Window window;
};
dnnl::convolution_forward::primitive_desc describe_convolution(const dnnl::engine& engine, const ConvolutionDescs& d);
dnnl::convolution_backward_data::primitive_desc describe_convolution_backward_data(const dnnl::engine& engine,
                                                                                   const ConvolutionDescs& d);
dnnl::convolution_backward_weights::primitive_desc describe_convolution_backward_weights(const dnnl::engine& engine,
                                                                                         const ConvolutionDescs& d);

// y = x W^T + b in rows: src [N,I], weights [O,I], bias [O], dst [N,O].
struct InnerProductDescs {
  MemoryDesc src, weights, bias, dst;
};
dnnl::inner_product_forward::primitive_desc describe_inner_product(const dnnl::engine& engine,
                                                                   const InnerProductDescs& d);
dnnl::inner_product_backward_data::primitive_desc describe_inner_product_backward_data(const dnnl::engine& engine,
                                                                                       const InnerProductDescs& d);
dnnl::inner_product_backward_weights::primitive_desc describe_inner_product_backward_weights(
    const dnnl::engine& engine, const InnerProductDescs& d);

// Maximum pooling; writes the positions of the maxima to its workspace.
struct PoolingDescs {
  MemoryDesc src, dst;
  Window window;
};
PoolingForward::primitive_desc describe_pooling(const dnnl::engine& engine, const PoolingDescs& d);
PoolingBackward::primitive_desc describe_pooling_backward(const dnnl::engine& engine, const PoolingDescs& d);

dnnl::reorder::primitive_desc describe_reorder(const dnnl::engine& engine, const MemoryDesc& from,
                                               const MemoryDesc& to);

// Returns a plain tensor with the dimensions of `other`, of which weights of several groups have one more.
MemoryDesc with_dimensions_of(const MemoryDesc& other, const MemoryDesc& plain);

// Whether the library implements a primitive by its slow fallback.
bool is_reference(const dnnl::primitive_desc_base& description);

// Channels that the library's vector kernels keep together: 16 with AVX-512, 8 otherwise.
int channel_block();

}  // namespace lockstep::cpu
