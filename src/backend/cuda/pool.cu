#include "backend/cuda/pool.h"

#include "backend/cuda/pool_packs.h"

namespace lockstep::cuda {
namespace {

template <class T, int kLanes>
__global__ void max_pool(PoolShape s, const T* x, T* y, uint8_t* saved) {
  for (int64_t i = thread_index(); i < s.out_items; i += grid_threads()) {
    const Item out = item_of(static_cast<unsigned>(i), s.packs, s.out_h, s.out_w);
    const auto best = maxima_of<kLanes>(s, out, x, [](float value, int) { return value; });
    store<kLanes>(best.values, y + out_offset(s, out) * kLanes);
    *reinterpret_cast<Pack<uint8_t, kLanes>*>(saved + i * kLanes) = best.positions;
  }
}

// Each thread gathers, for a pixel of the image, from the windows that chose it: no two threads add to one sum.
template <class T, int kLanes>
__global__ void max_pool_grad(PoolShape s, const T* dy, const uint8_t* saved, Summands<T> summands, T* dx) {
  for (int64_t i = thread_index(); i < s.in_items; i += grid_threads()) {
    float sums[kLanes] = {};
    const Item in = item_of(static_cast<unsigned>(i), s.packs, s.in_h, s.in_w);
    gather_from_maxima<kLanes>(s, in, dy, saved, sums);
    add_summands<kLanes>(summands, i * kLanes, sums);
    store<kLanes>(sums, dx + in_offset(s, in) * kLanes);
  }
}

template <class T, int kLanes>
__global__ void avg_pool(PoolShape s, const T* x, T* y) {
  for (int64_t i = thread_index(); i < s.out_items; i += grid_threads()) {
    const Item out = item_of(static_cast<unsigned>(i), s.packs, s.out_h, s.out_w);
    store<kLanes>(average_of<kLanes>(s, out, x).lane, y + out_offset(s, out) * kLanes);
  }
}

template <class T, int kLanes>
__global__ void avg_pool_grad(PoolShape s, const T* dy, T* dx) {
  for (int64_t i = thread_index(); i < s.in_items; i += grid_threads()) {
    float sums[kLanes] = {};
    const Item in = item_of(static_cast<unsigned>(i), s.packs, s.in_h, s.in_w);
    for_covering(s, in, [&](int, int64_t pixel, int oh, int ow) {
      const auto count = static_cast<float>(divisor(s, oh, ow));
      float gradients[kLanes];
      load<kLanes>(dy + (pixel * s.out_row + in.pack) * kLanes, gradients);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] += gradients[lane] / count;
    });
    store<kLanes>(sums, dx + in_offset(s, in) * kLanes);
  }
}

// Calls launch(element, lanes, geometry).
template <class Launch>
void with_pool(DType dtype, const PoolLaunch& pool, RowsIn in, RowsIn out, const Launch& launch) {
  with_packs(dtype, common_granule(dtype, pool.image.c(), {in, out}), [&](auto element, auto lanes) {
    launch(element, lanes, pool_shape(pool, decltype(lanes)::value, in, out));
  });
}

}  // namespace

void launch_max_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn x, RowsOut y, uint8_t* saved) {
  with_pool(dtype, pool, x, y, [&](auto element, auto lanes, const PoolShape& s) {
    using T = decltype(element);
    max_pool<T, decltype(lanes)::value><<<blocks_for(s.out_items), kThreads, 0, stream>>>(
        s, static_cast<const T*>(x.data), static_cast<T*>(y.data), saved);
  });
}

void launch_max_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn dy, const uint8_t* saved,
                          RowsOut dx, std::span<void* const> summands) {
  with_pool(dtype, pool, dx, dy, [&](auto element, auto lanes, const PoolShape& s) {
    using T = decltype(element);
    max_pool_grad<T, decltype(lanes)::value><<<blocks_for(s.in_items), kThreads, 0, stream>>>(
        s, static_cast<const T*>(dy.data), saved, summands_of<T>(summands), static_cast<T*>(dx.data));
  });
}

void launch_avg_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn x, RowsOut y) {
  with_pool(dtype, pool, x, y, [&](auto element, auto lanes, const PoolShape& s) {
    using T = decltype(element);
    avg_pool<T, decltype(lanes)::value>
        <<<blocks_for(s.out_items), kThreads, 0, stream>>>(s, static_cast<const T*>(x.data), static_cast<T*>(y.data));
  });
}

void launch_avg_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn dy, RowsOut dx) {
  with_pool(dtype, pool, dx, dy, [&](auto element, auto lanes, const PoolShape& s) {
    using T = decltype(element);
    avg_pool_grad<T, decltype(lanes)::value>
        <<<blocks_for(s.in_items), kThreads, 0, stream>>>(s, static_cast<const T*>(dy.data), static_cast<T*>(dx.data));
  });
}

}  // namespace lockstep::cuda
