// The index arithmetic of the pooling kernels: which pixels a window covers. The host compiler compiles it too, for its
// tests.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LOCKSTEP_POOL_FUNCTION __device__ __forceinline__
#else
#define LOCKSTEP_POOL_FUNCTION inline
#endif

namespace lockstep::cuda {

// Geometry in 32 bits: a tensor has fewer than 2^31 packs, and 64-bit divisions would dominate these kernels.
struct PoolShape {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  int in_h, in_w, out_h, out_w;
  unsigned packs;  // of channels
  unsigned out_items, in_items;
  bool count_include_pad;
  int64_t in_row, out_row;  // packs from a pixel to the next: more than `packs` in a channel slice
};

// A pack of channels of an image or an output.
struct Item {
  int n, h, w;
  unsigned pack;
};

LOCKSTEP_POOL_FUNCTION Item item_of(unsigned index, unsigned packs, int height, int width) {
  Item item;
  item.pack = index % packs;
  index /= packs;
  item.w = static_cast<int>(index % static_cast<unsigned>(width));
  index /= static_cast<unsigned>(width);
  item.h = static_cast<int>(index % static_cast<unsigned>(height));
  item.n = static_cast<int>(index / static_cast<unsigned>(height));
  return item;
}

LOCKSTEP_POOL_FUNCTION int64_t pixel_of(int n, int h, int w, int height, int width) {
  return (int64_t{n} * height + h) * width + w;
}

LOCKSTEP_POOL_FUNCTION int smaller(int a, int b) { return a < b ? a : b; }
LOCKSTEP_POOL_FUNCTION int larger(int a, int b) { return a > b ? a : b; }

// The outputs along one axis whose windows cover position `at`: [first, last).
struct Covering {
  int first, last;
};
LOCKSTEP_POOL_FUNCTION Covering covering(int at, int kernel, int stride, int pad, int outputs) {
  const int past = at + pad - kernel;
  return {past < 0 ? 0 : past / stride + 1, smaller((at + pad) / stride + 1, outputs)};
}

LOCKSTEP_POOL_FUNCTION int divisor(const PoolShape& s, int oh, int ow) {
  if (s.count_include_pad) return s.kernel_h * s.kernel_w;
  const int h = oh * s.stride_h - s.pad_h, w = ow * s.stride_w - s.pad_w;
  return (smaller(h + s.kernel_h, s.in_h) - larger(h, 0)) * (smaller(w + s.kernel_w, s.in_w) - larger(w, 0));
}

// Calls body(position in the window, pixel of the image) for the positions that lie in the image.
template <class Body>
LOCKSTEP_POOL_FUNCTION void for_window(const PoolShape& s, const Item& out, const Body& body) {
  for (int kh = 0; kh < s.kernel_h; ++kh) {
    const int h = out.h * s.stride_h - s.pad_h + kh;
    if (h < 0 || h >= s.in_h) continue;
    for (int kw = 0; kw < s.kernel_w; ++kw) {
      const int w = out.w * s.stride_w - s.pad_w + kw;
      if (w < 0 || w >= s.in_w) continue;
      body(kh * s.kernel_w + kw, pixel_of(out.n, h, w, s.in_h, s.in_w));
    }
  }
}

// The same for the windows that cover a pixel of the image: body(position in the window, pixel of the output, oh, ow).
template <class Body>
LOCKSTEP_POOL_FUNCTION void for_covering(const PoolShape& s, const Item& in, const Body& body) {
  const Covering hs = covering(in.h, s.kernel_h, s.stride_h, s.pad_h, s.out_h);
  const Covering ws = covering(in.w, s.kernel_w, s.stride_w, s.pad_w, s.out_w);
  for (int oh = hs.first; oh < hs.last; ++oh) {
    for (int ow = ws.first; ow < ws.last; ++ow) {
      const int position = (in.h + s.pad_h - oh * s.stride_h) * s.kernel_w + in.w + s.pad_w - ow * s.stride_w;
      body(position, pixel_of(in.n, oh, ow, s.out_h, s.out_w), oh, ow);
    }
  }
}

}  // namespace lockstep::cuda
