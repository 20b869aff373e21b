// The sums of batch norm and what is applied to each row (channels.h), for one rank and for all ranks. For .cu files.
#pragma once

#include "backend/cuda/channel_sums.h"
#include "backend/cuda/pool_packs.h"
#include "backend/kernels/functors.h"

namespace lockstep::cuda {

// What a thread reads of a row of an image and of its gradient.
template <class T, int kLanes, class Gradient = Pack<T, kLanes>>
struct RowAndGradient {
  Pack<T, kLanes> x;
  Gradient dy;
};

// The pack at a row of an image.
__device__ inline Item item_of_row(Location location, int lanes, int image_h, int image_w) {
  const auto row = static_cast<unsigned>(location.row), width = static_cast<unsigned>(image_w),
             height = static_cast<unsigned>(image_h);
  return {static_cast<int>(row / width / height), static_cast<int>(row / width % height), static_cast<int>(row % width),
          static_cast<unsigned>(location.channel / lanes)};
}

// Where the gradient by the normalized image comes from: from memory, or from the windows of a max pool.
template <class T>
struct ImageGradient {
  // Rows in flight of sums and of what is applied, and blocks of a multiprocessor that apply.
  static constexpr int kSumRows = 4, kApplyRows = 2, kApplyBlocks = 3;
  Image<const T> image;

  template <int kLanes>
  __device__ Pack<T, kLanes> load(Location location) const {
    return load_pack<T, kLanes>(image.at(location));
  }
};
template <class T>
struct PooledGradient {
  static constexpr int kSumRows = 2, kApplyRows = 1, kApplyBlocks = 2;
  PoolShape pool;
  const T* dy;
  const uint8_t* saved;

  template <int kLanes>
  __device__ Pack<float, kLanes> load(Location location) const {
    const Item in = item_of_row(location, kLanes, pool.in_h, pool.in_w);
    Pack<float, kLanes> sums{};
    gather_from_maxima<kLanes>(pool, in, dy, saved, sums.lane);
    return sums;
  }
};

template <int kLanes>
struct Norms {
  kernels::Normalization<float> lane[kLanes];
};

// Where the normalization of a channel comes from: batch statistics and what the forward pass saved.
struct SavedNorm {
  const float *mean, *factor, *shift;

  __device__ kernels::Normalization<float> of(int64_t channel) const {
    return {mean[channel], factor[channel], shift[channel]};
  }
};

template <int kLanes, class Source>
__device__ Norms<kLanes> norms_at(const Source& source, int64_t channel) {
  Norms<kLanes> norms;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) norms.lane[i] = source.of(channel + i);
  return norms;
}

template <class T, class Source>
struct Normalize {
  static constexpr int kRowsInFlight = 4, kBlocksOfProcessor = 4;
  Source source;
  bool relu;
  Image<const T> x;
  Image<T> y;

  template <int kLanes>
  __device__ Norms<kLanes> at(int64_t channel) const {
    return norms_at<kLanes>(source, channel);
  }
  template <int kLanes>
  __device__ Row<T, kLanes> load(Location location) const {
    return {load_pack<T, kLanes>(x.at(location))};
  }
  template <int kLanes>
  __device__ void row(const Norms<kLanes>& norms, const Row<T, kLanes>& loaded, Location location) const {
    float values[kLanes];
    unpack(loaded.x, values);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float z = kernels::normalized(values[i], norms.lane[i]);
      values[i] = relu ? kernels::relu(z) : z;
    }
    store<kLanes>(values, y.at(location));
  }
};

template <int kLanes>
struct Pivots {
  float lane[kLanes];
};

// The channel's first value is subtracted from all, so that the difference of the sums does not cancel.
template <class T>
struct BatchTerms {
  static constexpr int kRowsInFlight = 8, kBlocksOfProcessor = 2;
  Image<const T> x;

  template <int kLanes>
  __device__ Pivots<kLanes> at(int64_t channel) const {
    Pivots<kLanes> pivots;
    cuda::load<kLanes>(x.data + channel, pivots.lane);
    return pivots;
  }
  template <int kLanes>
  __device__ Row<T, kLanes> load(Location location) const {
    return {load_pack<T, kLanes>(x.at(location))};
  }
  template <int kLanes>
  __device__ void row(const Pivots<kLanes>& pivots, const Row<T, kLanes>& loaded, float* first, float* second) const {
    float values[kLanes];
    unpack(loaded.x, values);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float d = values[i] - pivots.lane[i];
      first[i] += d;
      second[i] += d * d;
    }
  }
};

// The same sums of an average pool of x, which is written.
template <class T>
struct AveragedTerms : BatchTerms<T> {
  static constexpr int kRowsInFlight = 1;
  PoolShape pool;
  Image<T> y;

  template <int kLanes>
  __device__ Row<T, kLanes> load(Location location) const {
    const Item out = item_of_row(location, kLanes, pool.out_h, pool.out_w);
    Row<T, kLanes> row;
    const Pack<float, kLanes> mean = average_of<kLanes>(pool, out, this->x.data);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) row.x.lane[i] = from_float<T>(mean.lane[i]);
    store_pack<T, kLanes>(row.x, y.at(location));
    return row;
  }
};

template <class T, class Gradient>
struct GradientTerms {
  static constexpr int kRowsInFlight = Gradient::kSumRows, kBlocksOfProcessor = 2;
  SavedNorm source;
  bool relu;
  Image<const T> x;
  Gradient dy;

  template <int kLanes>
  __device__ Norms<kLanes> at(int64_t channel) const {
    return norms_at<kLanes>(source, channel);
  }
  template <int kLanes>
  __device__ auto load(Location location) const {
    return RowAndGradient<T, kLanes, decltype(dy.template load<kLanes>(location))>{load_pack<T, kLanes>(x.at(location)),
                                                                                   dy.template load<kLanes>(location)};
  }
  template <int kLanes, class Loaded>
  __device__ void row(const Norms<kLanes>& norms, const Loaded& loaded, float* first, float* second) const {
    float values[kLanes], gradients[kLanes];
    unpack(loaded.x, values);
    unpack(loaded.dy, gradients);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float z = kernels::normalized(values[i], norms.lane[i]);
      const float g = relu ? kernels::relu_gradient(z, gradients[i]) : gradients[i];
      first[i] += g;
      second[i] += g * (values[i] - norms.lane[i].mean);
    }
  }
};

// The same sums for a max pool of what is normalized, over what was pooled, y, and its gradient: each is that of one
// value of the image, x - mean = (y - shift) / factor; the finish divides.
template <class T>
struct PooledTerms {
  static constexpr int kRowsInFlight = 4, kBlocksOfProcessor = 2;
  const float* shift;
  Image<const T> y, dy;

  template <int kLanes>
  __device__ Pivots<kLanes> at(int64_t channel) const {
    Pivots<kLanes> pivots;
    cuda::load<kLanes>(shift + channel, pivots.lane);
    return pivots;
  }
  template <int kLanes>
  __device__ RowAndGradient<T, kLanes> load(Location location) const {
    return {load_pack<T, kLanes>(y.at(location)), load_pack<T, kLanes>(dy.at(location))};
  }
  template <int kLanes>
  __device__ void row(const Pivots<kLanes>& shifts, const RowAndGradient<T, kLanes>& loaded, float* first,
                      float* second) const {
    float values[kLanes], gradients[kLanes];
    unpack(loaded.x, values);
    unpack(loaded.dy, gradients);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float g = kernels::relu_gradient(values[i], gradients[i]);
      first[i] += g;
      second[i] += g * (values[i] - shifts.lane[i]);
    }
  }
};

template <int kLanes>
struct Gradients {
  Norms<kLanes> norms;
  kernels::NormalizationGradient<float> lane[kLanes];
};

// What gradients of norms do with a row: dx = formula(lane, x, u, g, norm), where u is what the norm makes of x, and g
// the gradient of u.
template <class T, class Gradient>
struct GradientOfRows {
  SavedNorm source;
  bool relu;
  Image<const T> x;
  Gradient dy;
  Image<T> dx;

  template <int kLanes>
  __device__ auto load(Location location) const {
    return RowAndGradient<T, kLanes, decltype(dy.template load<kLanes>(location))>{load_pack<T, kLanes>(x.at(location)),
                                                                                   dy.template load<kLanes>(location)};
  }
  template <int kLanes, class Loaded, class Formula>
  __device__ void write(const Norms<kLanes>& norms, const Loaded& loaded, Location location,
                        const Formula& formula) const {
    float values[kLanes], gradients[kLanes];
    unpack(loaded.x, values);
    unpack(loaded.dy, gradients);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const auto& norm = norms.lane[i];
      const float u = kernels::normalized(values[i], norm);
      const float g = relu ? kernels::relu_gradient(u, gradients[i]) : gradients[i];
      gradients[i] = formula(i, values[i], u, g, norm);
    }
    store<kLanes>(gradients, dx.at(location));
  }
};

template <class T, class Gradient>
struct ApplyGradient : GradientOfRows<T, Gradient> {
  static constexpr int kRowsInFlight = Gradient::kApplyRows, kBlocksOfProcessor = Gradient::kApplyBlocks;
  const float* coefficients;
  int64_t channels;

  template <int kLanes>
  __device__ Gradients<kLanes> at(int64_t channel) const {
    Gradients<kLanes> all{norms_at<kLanes>(this->source, channel), {}};
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      all.lane[i] = {coefficients[channel + i], coefficients[channels + channel + i]};
    }
    return all;
  }
  template <int kLanes, class Loaded>
  __device__ void row(const Gradients<kLanes>& all, const Loaded& loaded, Location location) const {
    this->write(all.norms, loaded, location, [&](int i, float x, float, float g, const auto& norm) {
      return kernels::normalized_gradient(x, g, norm, all.lane[i]);
    });
  }
};

template <int kLanes>
struct Coefficients {
  float by_dz[kLanes], by_x[kLanes], constant[kLanes];
};

// dx = by_dz dz + by_x x + constant.
template <class T>
struct GradientOfCoefficients {
  static constexpr int kRowsInFlight = 2, kBlocksOfProcessor = 3;
  Image<const T> x, dz;
  const float *by_dz, *by_x, *constant;
  Image<T> dx;

  template <int kLanes>
  __device__ Coefficients<kLanes> at(int64_t channel) const {
    Coefficients<kLanes> all;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      all.by_dz[i] = by_dz[channel + i];
      all.by_x[i] = by_x[channel + i];
      all.constant[i] = constant[channel + i];
    }
    return all;
  }
  template <int kLanes>
  __device__ RowAndGradient<T, kLanes> load(Location location) const {
    return {load_pack<T, kLanes>(x.at(location)), load_pack<T, kLanes>(dz.at(location))};
  }
  template <int kLanes>
  __device__ void row(const Coefficients<kLanes>& all, const RowAndGradient<T, kLanes>& loaded,
                      Location location) const {
    float values[kLanes], gradients[kLanes];
    unpack(loaded.x, values);
    unpack(loaded.dy, gradients);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      gradients[i] = all.by_dz[i] * gradients[i] + (all.by_x[i] * values[i] + all.constant[i]);
    }
    store<kLanes>(gradients, dx.at(location));
  }
};

}  // namespace lockstep::cuda
