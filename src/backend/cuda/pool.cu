#include "backend/cuda/device.h"
#include "backend/cuda/launchers.h"

namespace lockstep::cuda {
namespace {

// Geometry in 32 bits: a tensor has fewer than 2^31 packs, and division by them is what these kernels would wait for.
struct PoolShape {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  int in_h, in_w, out_h, out_w;
  unsigned packs;  // of channels
  unsigned out_items, in_items;
  bool count_include_pad;
};

struct Item {
  int n, h, w;
  unsigned pack;
};

__device__ Item item_of(unsigned index, unsigned packs, int height, int width) {
  Item item;
  item.pack = index % packs;
  index /= packs;
  item.w = static_cast<int>(index % static_cast<unsigned>(width));
  index /= static_cast<unsigned>(width);
  item.h = static_cast<int>(index % static_cast<unsigned>(height));
  item.n = static_cast<int>(index / static_cast<unsigned>(height));
  return item;
}

__device__ int64_t offset_of(int n, int h, int w, int height, int width, unsigned packs) {
  return ((int64_t{n} * height + h) * width + w) * packs;
}

// The outputs along one axis whose windows hold place `at`: [first, last).
struct Covering {
  int first, last;
};
__device__ Covering covering(int at, int kernel, int stride, int pad, int outputs) {
  const int past = at + pad - kernel;
  return {past < 0 ? 0 : past / stride + 1, min((at + pad) / stride + 1, outputs)};
}

__device__ int divisor(const PoolShape& s, int oh, int ow) {
  if (s.count_include_pad) return s.kernel_h * s.kernel_w;
  const int h = oh * s.stride_h - s.pad_h, w = ow * s.stride_w - s.pad_w;
  return (min(h + s.kernel_h, s.in_h) - max(h, 0)) * (min(w + s.kernel_w, s.in_w) - max(w, 0));
}

// Calls body(place in the window, offset of the pack in the image) for the places that lie in the image.
template <class Body>
__device__ void for_window(const PoolShape& s, const Item& out, const Body& body) {
  for (int kh = 0; kh < s.kernel_h; ++kh) {
    const int h = out.h * s.stride_h - s.pad_h + kh;
    if (h < 0 || h >= s.in_h) continue;
    for (int kw = 0; kw < s.kernel_w; ++kw) {
      const int w = out.w * s.stride_w - s.pad_w + kw;
      if (w < 0 || w >= s.in_w) continue;
      body(kh * s.kernel_w + kw, offset_of(out.n, h, w, s.in_h, s.in_w, s.packs) + out.pack);
    }
  }
}

// The same for the windows that hold an image place: body(place in the window, offset of the output's pack, oh, ow).
template <class Body>
__device__ void for_covering(const PoolShape& s, const Item& in, const Body& body) {
  const Covering hs = covering(in.h, s.kernel_h, s.stride_h, s.pad_h, s.out_h);
  const Covering ws = covering(in.w, s.kernel_w, s.stride_w, s.pad_w, s.out_w);
  for (int oh = hs.first; oh < hs.last; ++oh) {
    for (int ow = ws.first; ow < ws.last; ++ow) {
      const int place = (in.h + s.pad_h - oh * s.stride_h) * s.kernel_w + in.w + s.pad_w - ow * s.stride_w;
      body(place, offset_of(in.n, oh, ow, s.out_h, s.out_w, s.packs) + in.pack, oh, ow);
    }
  }
}

// The first maximum in row-major order wins, and a NaN wins over all.
template <class T, int kLanes>
__global__ void max_pool(PoolShape s, const T* x, T* y, uint8_t* saved) {
  for (int64_t i = thread_index(); i < s.out_items; i += grid_threads()) {
    float best[kLanes];
    Pack<uint8_t, kLanes> places;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      best[lane] = -INFINITY;
      places.lane[lane] = kNoMaximum;
    }
    for_window(s, item_of(static_cast<unsigned>(i), s.packs, s.out_h, s.out_w), [&](int place, int64_t at) {
      float values[kLanes];
      load<kLanes>(x + at * kLanes, values);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        if (places.lane[lane] != kNoMaximum && !(values[lane] > best[lane]) && !isnan(values[lane])) continue;
        best[lane] = values[lane];
        places.lane[lane] = static_cast<uint8_t>(place);
      }
    });
    store<kLanes>(best, y + i * kLanes);
    *reinterpret_cast<Pack<uint8_t, kLanes>*>(saved + i * kLanes) = places;
  }
}

// Every image place gathers from the windows that chose it, so nothing is added by two threads.
template <class T, int kLanes>
__global__ void max_pool_grad(PoolShape s, const T* dy, const uint8_t* saved, T* dx) {
  for (int64_t i = thread_index(); i < s.in_items; i += grid_threads()) {
    float sums[kLanes] = {};
    for_covering(s, item_of(static_cast<unsigned>(i), s.packs, s.in_h, s.in_w), [&](int place, int64_t at, int, int) {
      const auto places = *reinterpret_cast<const Pack<uint8_t, kLanes>*>(saved + at * kLanes);
      float gradients[kLanes];
      load<kLanes>(dy + at * kLanes, gradients);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] += places.lane[lane] == place ? gradients[lane] : 0;
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
