// Where a pool's packs of channels lie, and what its gradient gathers. For .cu files.
#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/pool.h"
#include "backend/cuda/pool_geometry.h"

namespace lockstep::cuda {

// In packs, of an image and of what is pooled.
__device__ inline int64_t in_offset(const PoolShape& s, const Item& in) {
  return pixel_of(in.n, in.h, in.w, s.in_h, s.in_w) * s.in_row + in.pack;
}
__device__ inline int64_t out_offset(const PoolShape& s, const Item& out) {
  return pixel_of(out.n, out.h, out.w, s.out_h, s.out_w) * s.out_row + out.pack;
}

// A pack of what is pooled, and the position in the window that each lane is from. The maximum of transform(value,
// lane) over the window of `x`: the first in row-major order wins, and a NaN wins over all.
template <int kLanes>
struct Maxima {
  float values[kLanes];
  Pack<uint8_t, kLanes> positions;
};
template <int kLanes, class T, class Transform>
__device__ Maxima<kLanes> maxima_of(const PoolShape& s, const Item& out, const T* x, const Transform& transform) {
  Maxima<kLanes> best;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    best.values[lane] = -INFINITY;
    best.positions.lane[lane] = kNoMaximum;
  }
  for_window(s, out, [&](int position, int64_t pixel) {
    float values[kLanes];
    load<kLanes>(x + (pixel * s.in_row + out.pack) * kLanes, values);
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      const float value = transform(values[lane], lane);
      if (best.positions.lane[lane] != kNoMaximum && !(value > best.values[lane]) && !isnan(value)) continue;
      best.values[lane] = value;
      best.positions.lane[lane] = static_cast<uint8_t>(position);
    }
  });
  return best;
}

template <int kLanes, class T>
__device__ Pack<float, kLanes> average_of(const PoolShape& s, const Item& out, const T* x) {
  Pack<float, kLanes> sums{};
  for_window(s, out, [&](int, int64_t pixel) {
    float values[kLanes];
    load<kLanes>(x + (pixel * s.in_row + out.pack) * kLanes, values);
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) sums.lane[lane] += values[lane];
  });
  const auto count = static_cast<float>(divisor(s, out.h, out.w));
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) sums.lane[lane] /= count;
  return sums;
}

// Adds the gradients of the windows that chose this pack of the image.
template <int kLanes, class T>
__device__ void gather_from_maxima(const PoolShape& s, const Item& in, const T* dy, const uint8_t* saved,
                                   float (&sums)[kLanes]) {
  for_covering(s, in, [&](int position, int64_t pixel, int, int) {
    const auto chosen = *reinterpret_cast<const Pack<uint8_t, kLanes>*>(saved + (pixel * s.packs + in.pack) * kLanes);
    float gradients[kLanes];
    load<kLanes>(dy + (pixel * s.out_row + in.pack) * kLanes, gradients);
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += chosen.lane[lane] == position ? gradients[lane] : 0;
  });
}

// Dense arrays that are added to the gradient of a max pool.
template <class T>
struct Summands {
  const T* data[kMaxSummands];
  int count;
};
template <class T>
Summands<T> summands_of(std::span<void* const> arrays) {
  Summands<T> all{{}, static_cast<int>(arrays.size())};
  for (size_t k = 0; k < arrays.size(); ++k) all.data[k] = static_cast<const T*>(arrays[k]);
  return all;
}
template <int kLanes, class T>
__device__ void add_summands(const Summands<T>& summands, int64_t element, float (&sums)[kLanes]) {
#pragma unroll
  for (int k = 0; k < static_cast<int>(kMaxSummands); ++k) {
    if (k >= summands.count) break;
    float values[kLanes];
    load<kLanes>(summands.data[k] + element, values);
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += values[lane];
  }
}

// `in`, `out`: the image and what is pooled, or their gradients.
inline PoolShape pool_shape(const PoolLaunch& pool, int lanes, RowsIn in, RowsIn out) {
  const Window& w = pool.window;
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  const int64_t packs = pool.image.c() / lanes;
  const auto items = [&](const Shape& s) { return static_cast<unsigned>(s.n() * s.h() * s.w() * packs); };
  return {narrow(w.kernel_h),   narrow(w.kernel_w),     narrow(w.stride_h),           narrow(w.stride_w),
          narrow(w.pad_h),      narrow(w.pad_w),        narrow(pool.image.h()),       narrow(pool.image.w()),
          narrow(pool.out.h()), narrow(pool.out.w()),   static_cast<unsigned>(packs), items(pool.out),
          items(pool.image),    pool.count_include_pad, in.row_elements / lanes,      out.row_elements / lanes};
}

}  // namespace lockstep::cuda
