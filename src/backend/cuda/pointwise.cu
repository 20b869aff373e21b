#include "backend/cuda/pointwise.h"

#include "backend/cuda/device.h"
#include "backend/dropout_mask.h"
#include "backend/kernels/functors.h"

namespace lockstep::cuda {
namespace {

struct ApplyRelu {
  __device__ float operator()(float x, float) const { return kernels::relu(x); }
};
struct ApplyReluGradient {
  __device__ float operator()(float y, float dy) const { return kernels::relu_gradient(y, dy); }
};
struct ApplyRelu6 {
  __device__ float operator()(float x, float) const { return kernels::relu6(x); }
};
struct ApplyRelu6Gradient {
  __device__ float operator()(float y, float dy) const { return kernels::relu6_gradient(y, dy); }
};

// out[i] = body(a[i], b[i]) in packs, and one by one what is left over; b may be null for bodies of one argument.
template <int kLanes, class T, class Body>
__global__ void map(int64_t count, Body body, const T* a, const T* b, T* out) {
  const int64_t packs = count / kLanes;
  for (int64_t i = thread_index(); i < packs; i += grid_threads()) {
    float left[kLanes], right[kLanes] = {};
    load<kLanes>(a + i * kLanes, left);
    if (b) load<kLanes>(b + i * kLanes, right);
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) left[lane] = body(left[lane], right[lane]);
    store<kLanes>(left, out + i * kLanes);
  }
  const int64_t rest = packs * kLanes + thread_index();
  if (rest < count) out[rest] = from_float<T>(body(to_float(a[rest]), b ? to_float(b[rest]) : 0));
}

template <class Body>
void launch_map(cudaStream_t stream, DType dtype, int64_t count, const void* a, const void* b, void* out) {
  const bool in_packs = begins_pack(a) && begins_pack(b) && begins_pack(out);
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    const auto *left = static_cast<const T*>(a), *right = static_cast<const T*>(b);
    auto* result = static_cast<T*>(out);
    if (in_packs) {
      constexpr int kLanes = kWidest<T>;
      map<kLanes><<<blocks_for(count / kLanes), kThreads, 0, stream>>>(count, Body{}, left, right, result);
    } else {
      map<1><<<blocks_for(count), kThreads, 0, stream>>>(count, Body{}, left, right, result);
    }
  });
}

// kTerms arrays, added in order.
template <class T, int kTerms>
struct Terms {
  const T* of[kTerms];
};
template <int kLanes, class T, int kTerms>
__global__ void add(int64_t count, Terms<T, kTerms> terms, T* sum) {
  const int64_t packs = count / kLanes;
  for (int64_t i = thread_index(); i < packs; i += grid_threads()) {
    Pack<T, kLanes> loaded[kTerms];
#pragma unroll
    for (int term = 0; term < kTerms; ++term) loaded[term] = load_pack<T, kLanes>(terms.of[term] + i * kLanes);
    float total[kLanes];
    unpack(loaded[0], total);
#pragma unroll
    for (int term = 1; term < kTerms; ++term) {
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) total[lane] += to_float(loaded[term].lane[lane]);
    }
    store<kLanes>(total, sum + i * kLanes);
  }
  const int64_t rest = packs * kLanes + thread_index();
  if (rest >= count) return;
  float total = to_float(terms.of[0][rest]);
#pragma unroll
  for (int term = 1; term < kTerms; ++term) total += to_float(terms.of[term][rest]);
  sum[rest] = from_float<T>(total);
}

template <class T, int kTerms>
void launch_add_of(cudaStream_t stream, int64_t count, std::span<const void* const> arrays, void* sum) {
  Terms<T, kTerms> terms{};
  bool in_packs = begins_pack(sum);
  for (int i = 0; i < kTerms; ++i) {
    terms.of[i] = static_cast<const T*>(arrays[i]);
    in_packs = in_packs && begins_pack(arrays[i]);
  }
  auto* result = static_cast<T*>(sum);
  if (in_packs) {
    constexpr int kLanes = kWidest<T>;
    add<kLanes><<<blocks_for(count / kLanes), kThreads, 0, stream>>>(count, terms, result);
  } else {
    add<1><<<blocks_for(count), kThreads, 0, stream>>>(count, terms, result);
  }
}

template <class T>
__global__ void add_bias(Rows shape, const T* bias, T* y) {
  for (int64_t i = thread_index(); i < shape.elements(); i += grid_threads()) {
    y[i] = from_float<T>(to_float(y[i]) + to_float(bias[i % shape.channels]));
  }
}

// Elements are numbered in logical order, [C,H,W] within a sample, though they lie channels last.
template <class T>
__global__ void drop(DropoutLaunch what, const int32_t* step, const T* x, T* y) {
  const DropoutMask mask(what.op, std::span<const int32_t, 4>(step, 4));
  const auto factor = static_cast<float>(1 / (1 - what.op.rate));
  const int64_t of_sample = what.channels * what.pixels;
  for (int64_t i = thread_index(); i < what.samples * of_sample; i += grid_threads()) {
    const int64_t n = i / of_sample, inside = i % of_sample;
    const int64_t pixel = inside / what.channels, channel = inside % what.channels;
    const uint64_t counter = mask.counter(n, of_sample) + static_cast<uint64_t>(channel * what.pixels + pixel);
    y[i] = from_float<T>(mask.keeps(counter) ? to_float(x[i]) * factor : 0);
  }
}

// Sums over the threads of a block, in a fixed order; all threads know them.
constexpr int kImageThreads = 1024;  // of a block that has an image for itself
__device__ void sum_over_image(double (&sums)[3]) {
  __shared__ double shared[3][kImageThreads];
#pragma unroll
  for (int c = 0; c < 3; ++c) shared[c][threadIdx.x] = sums[c];
  __syncthreads();
  for (unsigned half = kImageThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
#pragma unroll
      for (int c = 0; c < 3; ++c) shared[c][threadIdx.x] += shared[c][threadIdx.x + half];
    }
    __syncthreads();
  }
#pragma unroll
  for (int c = 0; c < 3; ++c) sums[c] = shared[c][0];
  __syncthreads();
}

__device__ inline void load_pixel(const uint8_t* image, int i, float (&values)[3]) {
#pragma unroll
  for (int c = 0; c < 3; ++c) values[c] = image[int64_t{3} * i + c];
}

// The change of an image's colors up to that of its contrast, which needs the mean of each channel, and the rest.
struct ColorChange {
  const ColorDistortion color;
  float mean[3];

  __device__ void change_hue(float (&values)[3]) const {
    change_saturation_and_hue(color.saturation, 6 * color.hue, values[0], values[1], values[2]);
  }
  __device__ void begin(float (&values)[3]) const {
#pragma unroll
    for (int c = 0; c < 3; ++c) values[c] = values[c] * (1.0F / 255) + color.brightness;
    if (color.contrast_first == 0) change_hue(values);
  }
  __device__ void finish(float (&values)[3]) const {
#pragma unroll
    for (int c = 0; c < 3; ++c) values[c] = (values[c] - mean[c]) * color.contrast + mean[c];
    if (color.contrast_first != 0) change_hue(values);
#pragma unroll
    for (int c = 0; c < 3; ++c) values[c] = fminf(fmaxf(values[c], 0), 1);
  }
};

// Blocks in y take images. One that distorts has the whole image, which it reads twice.
template <bool kDistort, int kStored, class T>
__global__ void __launch_bounds__(kDistort ? kImageThreads : kThreads)
    prepare_pixels(PixelsLaunch what, const uint8_t* bytes, const ImageChanges* changes, T* y) {
  const int first = static_cast<int>(thread_index()), step = static_cast<int>(grid_threads());
  for (int64_t n = blockIdx.y; n < what.samples; n += gridDim.y) {
    const uint8_t* image = bytes + n * 3 * what.pixels;
    const bool mirrored = changes && changes[n].mirrored != 0;
    ColorChange change{kDistort ? changes[n].color : ColorDistortion{}, {}};
    if constexpr (kDistort) {
      double sums[3] = {};
      for (int i = first; i < what.pixels; i += step) {
        float values[3];
        load_pixel(image, i, values);
        change.begin(values);
#pragma unroll
        for (int c = 0; c < 3; ++c) sums[c] += values[c];
      }
      sum_over_image(sums);
#pragma unroll
      for (int c = 0; c < 3; ++c) change.mean[c] = static_cast<float>(sums[c] / what.pixels);
    }
    const int to_pixels = what.pixels / what.width * what.to_width;
    for (int i = first; i < to_pixels; i += step) {
      float values[3], stored[kStored] = {};
      const int row = i / what.to_width * what.width, column = i % what.to_width;
      if (column < what.width) {
        load_pixel(image, row + (mirrored ? what.width - 1 - column : column), values);
        if constexpr (kDistort) {
          change.begin(values);
          change.finish(values);
        }
#pragma unroll
        for (int c = 0; c < 3; ++c) stored[c] = values[c] * what.op.scale[c] + what.op.shift[c];
      }
      T* to = y + (n * to_pixels + i) * kStored;
      if constexpr (kStored == 3) {
#pragma unroll
        for (int c = 0; c < 3; ++c) to[c] = from_float<T>(stored[c]);
      } else {
        store<kStored>(stored, to);
      }
    }
  }
}

template <bool kDistort, int kStored, class T>
void launch_prepare(cudaStream_t stream, const PixelsLaunch& what, const uint8_t* bytes, const ImageChanges* changes,
                    T* y) {
  constexpr int64_t kMaxImages = 65535;  // what a grid's y may be
  constexpr int kPixelsOfThread = 4;
  const dim3 grid(kDistort ? 1 : blocks_for(what.pixels / kPixelsOfThread),
                  static_cast<unsigned>(std::min(what.samples, kMaxImages)));
  prepare_pixels<kDistort, kStored, T>
      <<<grid, kDistort ? kImageThreads : kThreads, 0, stream>>>(what, bytes, changes, y);
}

}  // namespace

void launch_prepare_pixels(cudaStream_t stream, const PixelsLaunch& what, const uint8_t* bytes,
                           const ImageChanges* changes, void* y) {
  with_element(what.op.to, [&](auto element) {
    using T = decltype(element);
    const auto launch = [&](auto stored) {
      const auto prepare = what.op.distort ? launch_prepare<true, stored(), T> : launch_prepare<false, stored(), T>;
      if (what.stored == stored()) prepare(stream, what, bytes, changes, static_cast<T*>(y));
    };
    launch(std::integral_constant<int, 3>{});
    if constexpr (sizeof(T) == 2) {
      launch(std::integral_constant<int, 4>{});
      launch(std::integral_constant<int, 8>{});
    }
  });
}

void launch_relu(cudaStream_t stream, DType dtype, int64_t count, bool six, const void* x, void* y) {
  const auto launch = six ? launch_map<ApplyRelu6> : launch_map<ApplyRelu>;
  launch(stream, dtype, count, x, nullptr, y);
}

void launch_relu_grad(cudaStream_t stream, DType dtype, int64_t count, bool six, const void* y, const void* dy,
                      void* dx) {
  const auto launch = six ? launch_map<ApplyRelu6Gradient> : launch_map<ApplyReluGradient>;
  launch(stream, dtype, count, y, dy, dx);
}

void launch_add(cudaStream_t stream, DType dtype, int64_t count, std::span<const void* const> terms, void* sum) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    if (terms.size() == 1) launch_add_of<T, 1>(stream, count, terms, sum);
    if (terms.size() == 2) launch_add_of<T, 2>(stream, count, terms, sum);
    if (terms.size() == 3) launch_add_of<T, 3>(stream, count, terms, sum);
    if (terms.size() == 4) launch_add_of<T, 4>(stream, count, terms, sum);
  });
}

void launch_add_bias(cudaStream_t stream, DType dtype, Rows shape, const void* bias, void* y) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    add_bias<T>
        <<<blocks_for(shape.elements()), kThreads, 0, stream>>>(shape, static_cast<const T*>(bias), static_cast<T*>(y));
  });
}

void launch_dropout(cudaStream_t stream, DType dtype, const DropoutLaunch& what, const int32_t* step, const void* x,
                    void* y) {
  const int64_t count = what.samples * what.channels * what.pixels;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    drop<T><<<blocks_for(count), kThreads, 0, stream>>>(what, step, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

}  // namespace lockstep::cuda
