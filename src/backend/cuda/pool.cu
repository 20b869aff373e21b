#include "backend/cuda/pool.h"

#include "backend/cuda/device.h"
#include "backend/cuda/pool_geometry.h"

namespace lockstep::cuda {
namespace {

// The first maximum in row-major order wins, and a NaN wins over all.
template <class T, int kLanes>
__global__ void max_pool(PoolShape s, const T* x, T* y, uint8_t* saved) {
  for (int64_t i = thread_index(); i < s.out_items; i += grid_threads()) {
    float best[kLanes];
    Pack<uint8_t, kLanes> positions;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      best[lane] = -INFINITY;
      positions.lane[lane] = kNoMaximum;
    }
    for_window(s, item_of(static_cast<unsigned>(i), s.packs, s.out_h, s.out_w), [&](int position, int64_t at) {
      float values[kLanes];
      load<kLanes>(x + at * kLanes, values);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        if (positions.lane[lane] != kNoMaximum && !(values[lane] > best[lane]) && !isnan(values[lane])) continue;
        best[lane] = values[lane];
        positions.lane[lane] = static_cast<uint8_t>(position);
      }
    });
    store<kLanes>(best, y + i * kLanes);
    *reinterpret_cast<Pack<uint8_t, kLanes>*>(saved + i * kLanes) = positions;
  }
}

// Each thread gathers, for a pixel of the image, from the windows that chose it: no two threads add to one sum.
template <class T, int kLanes>
__global__ void max_pool_grad(PoolShape s, const T* dy, const uint8_t* saved, T* dx) {
  for (int64_t i = thread_index(); i < s.in_items; i += grid_threads()) {
    float sums[kLanes] = {};
    for_covering(s, item_of(static_cast<unsigned>(i), s.packs, s.in_h, s.in_w),
                 [&](int position, int64_t at, int, int) {
                   const auto positions = *reinterpret_cast<const Pack<uint8_t, kLanes>*>(saved + at * kLanes);
                   float gradients[kLanes];
                   load<kLanes>(dy + at * kLanes, gradients);
#pragma unroll
                   for (int lane = 0; lane < kLanes; ++lane)
                     sums[lane] += positions.lane[lane] == position ? gradients[lane] : 0;
                 });
    store<kLanes>(sums, dx + i * kLanes);
  }
}

template <class T, int kLanes>
__global__ void avg_pool(PoolShape s, const T* x, T* y) {
  for (int64_t i = thread_index(); i < s.out_items; i += grid_threads()) {
    const Item out = item_of(static_cast<unsigned>(i), s.packs, s.out_h, s.out_w);
    float sums[kLanes] = {};
    for_window(s, out, [&](int, int64_t at) {
      float values[kLanes];
      load<kLanes>(x + at * kLanes, values);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] += values[lane];
    });
    const auto count = static_cast<float>(divisor(s, out.h, out.w));
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] /= count;
    store<kLanes>(sums, y + i * kLanes);
  }
}

template <class T, int kLanes>
__global__ void avg_pool_grad(PoolShape s, const T* dy, T* dx) {
  for (int64_t i = thread_index(); i < s.in_items; i += grid_threads()) {
    float sums[kLanes] = {};
    for_covering(s, item_of(static_cast<unsigned>(i), s.packs, s.in_h, s.in_w), [&](int, int64_t at, int oh, int ow) {
      const auto count = static_cast<float>(divisor(s, oh, ow));
      float gradients[kLanes];
      load<kLanes>(dy + at * kLanes, gradients);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] += gradients[lane] / count;
    });
    store<kLanes>(sums, dx + i * kLanes);
  }
}

PoolShape shape_of(const PoolLaunch& pool, int lanes) {
  const Window& w = pool.window;
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  const int64_t packs = pool.image.c() / lanes;
  const auto items = [&](const Shape& s) { return static_cast<unsigned>(s.n() * s.h() * s.w() * packs); };
  return {narrow(w.kernel_h),   narrow(w.kernel_w),    narrow(w.stride_h),           narrow(w.stride_w),
          narrow(w.pad_h),      narrow(w.pad_w),       narrow(pool.image.h()),       narrow(pool.image.w()),
          narrow(pool.out.h()), narrow(pool.out.w()),  static_cast<unsigned>(packs), items(pool.out),
          items(pool.image),    pool.count_include_pad};
}

// Calls launch(element, lanes, geometry).
template <class Launch>
void with_pool(DType dtype, const PoolLaunch& pool, const Launch& launch) {
  with_packs(dtype, pool.image.c(),
             [&](auto element, auto lanes) { launch(element, lanes, shape_of(pool, decltype(lanes)::value)); });
}

}  // namespace

void launch_max_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* x, void* y, uint8_t* saved) {
  with_pool(dtype, pool, [&](auto element, auto lanes, const PoolShape& s) {
    using T = decltype(element);
    max_pool<T, decltype(lanes)::value>
        <<<blocks_for(s.out_items), kThreads, 0, stream>>>(s, static_cast<const T*>(x), static_cast<T*>(y), saved);
  });
}

void launch_max_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* dy,
                          const uint8_t* saved, void* dx) {
  with_pool(dtype, pool, [&](auto element, auto lanes, const PoolShape& s) {
    using T = decltype(element);
    max_pool_grad<T, decltype(lanes)::value>
        <<<blocks_for(s.in_items), kThreads, 0, stream>>>(s, static_cast<const T*>(dy), saved, static_cast<T*>(dx));
  });
}

void launch_avg_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* x, void* y) {
  with_pool(dtype, pool, [&](auto element, auto lanes, const PoolShape& s) {
    using T = decltype(element);
    avg_pool<T, decltype(lanes)::value>
        <<<blocks_for(s.out_items), kThreads, 0, stream>>>(s, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void launch_avg_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* dy, void* dx) {
  with_pool(dtype, pool, [&](auto element, auto lanes, const PoolShape& s) {
    using T = decltype(element);
    avg_pool_grad<T, decltype(lanes)::value>
        <<<blocks_for(s.in_items), kThreads, 0, stream>>>(s, static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

}  // namespace lockstep::cuda
