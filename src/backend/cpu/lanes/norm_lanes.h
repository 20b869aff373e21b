// Batch norm: moments, normalization, gradient. Part of lane_body.h: compiled once per instruction set, in a namespace
// of its own.
#pragma once

#include "backend/cpu/lanes/lanes.h"

namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE {

using kernels::Normalization;
using kernels::NormalizationGradient;

constexpr int64_t kPiece = 384;  // vectors, which stay in the first-level cache for the second pass

// The moments of every lane; all lanes have the same number of values.
template <class V>
struct LaneMoments {
  double count = 0;
  double mean[kWidth<V>] = {}, m2[kWidth<V>] = {};

  void add(int64_t piece, V piece_mean, V piece_m2) {
    alignas(64) float means[kWidth<V>], sums[kWidth<V>];
    store(piece_mean, means);
    store(piece_m2, sums);
    const kernels::MomentShare<double> share(count, static_cast<double>(piece));
    for (int i = 0; i < kWidth<V>; ++i) {
      share.add(static_cast<double>(means[i]), static_cast<double>(sums[i]), mean[i], m2[i]);
    }
    count += static_cast<double>(piece);
  }
};

template <int kBlock, class T>
[[gnu::flatten]] void moments(const Tile& tile, const T* x, MomentSums& sums) {
  using V = typename Shape<kBlock>::V;
  const Shape<kBlock> shape(tile);
  constexpr int64_t kStep = Shape<kBlock>::kStep;
  LaneMoments<V> lanes;
  for (int64_t first = 0; first < shape.vectors; first += kPiece) {
    const int64_t end = first + kPiece < shape.vectors ? first + kPiece : shape.vectors;
    const V mean = sum_over<V>(first, end, [&](int64_t i) { return load<V>(x + i * kStep); }) *
                   V(1 / static_cast<float>(end - first));
    const V m2 = sum_over<V>(first, end, [&](int64_t i) {
      const V distance = load<V>(x + i * kStep) - mean;
      return distance * distance;
    });
    // The mean and the distances are rounded to float, an error no larger than that of the values themselves.
    lanes.add(end - first, mean, m2);
  }
  if constexpr (kBlock == 1) {
    kernels::Moments<double> all;
    for (int i = 0; i < kWidth<V>; ++i) all.add({lanes.count, lanes.mean[i], lanes.m2[i]});
    for (int64_t i = 0; i < shape.rest; ++i)
      all.add({1, static_cast<double>(load<float>(x + shape.vectors * kStep + i)), 0});
    sums.mean.at[0] = all.mean;
    sums.m2.at[0] = all.m2;
  } else {
    for (int i = 0; i < kBlock; ++i) {
      sums.mean.at[i] = lanes.mean[i];
      sums.m2.at[i] = lanes.m2[i];
    }
  }
}

template <class V, int kBlock>
LOCKSTEP_FORMULA Normalization<V> normalization(const NormChannels& channels) {
  return {channels_in<V, kBlock>(channels.mean), channels_in<V, kBlock>(channels.factor),
          channels_in<V, kBlock>(channels.shift)};
}

template <class V, bool kRelu>
LOCKSTEP_FORMULA V output_of(V x, const Normalization<V>& norm) {
  const V y = kernels::normalized(x, norm);
  return kRelu ? kernels::relu(y) : y;
}

// The gradient of the normalized value, from that of the output: the ReLU's mask is the sign of the normalized value.
template <class V, bool kRelu>
LOCKSTEP_FORMULA V gradient_of(V x, V dy, const Normalization<V>& norm) {
  return kRelu ? kernels::relu_gradient(kernels::normalized(x, norm), dy) : dy;
}

template <int kBlock, bool kRelu, class T>
[[gnu::flatten]] void normalize(const NormTile& n, T* y) {
  const T* x = static_cast<const T*>(n.x);
  using V = typename Shape<kBlock>::V;
  const Shape<kBlock> shape(n.tile);
  constexpr int64_t kStep = Shape<kBlock>::kStep;
  const auto norm = normalization<V, kBlock>(n.channels);
  for (int64_t i = 0; i < shape.vectors; ++i) {
    store(output_of<V, kRelu>(load<V>(x + i * kStep), norm), y + i * kStep);
  }
  const auto single = normalization<float, 1>(n.channels);
  for (int64_t i = shape.vectors * kStep; i < shape.vectors * kStep + shape.rest; ++i) {
    store(output_of<float, kRelu>(load<float>(x + i), single), y + i);
  }
}

template <class T, int kBlock, bool kRelu>
[[gnu::flatten]] void gradient_sums(const NormTile& n, GradientSums& sums) {
  const T *x = static_cast<const T*>(n.x), *dy = static_cast<const T*>(n.dy);
  using V = typename Shape<kBlock>::V;
  const Shape<kBlock> shape(n.tile);
  constexpr int64_t kStep = Shape<kBlock>::kStep;
  constexpr int kLanes = static_cast<int>(kStep);
  const auto norm = normalization<V, kBlock>(n.channels);
  double gradients[kLanes] = {}, products[kLanes] = {};
  for (int64_t first = 0; first < shape.vectors; first += kPiece) {
    const int64_t end = first + kPiece < shape.vectors ? first + kPiece : shape.vectors;
    V product(0);
    const V gradient = sum_over<V>(first, end, [&](int64_t i) {
      const V value = load<V>(x + i * kStep);
      const V g = gradient_of<V, kRelu>(value, load<V>(dy + i * kStep), norm);
      product += g * (value - norm.mean);
      return g;
    });
    alignas(64) float piece[2][kLanes];
    store(gradient, piece[0]);
    store(product, piece[1]);
    for (int i = 0; i < kLanes; ++i) {
      gradients[i] += static_cast<double>(piece[0][i]);
      products[i] += static_cast<double>(piece[1][i]);
    }
  }
  if constexpr (kBlock == 1) {
    const auto single = normalization<float, 1>(n.channels);
    double gradient = 0, product = 0;
    for (int i = 0; i < kLanes; ++i) {
      gradient += gradients[i];
      product += products[i];
    }
    for (int64_t i = shape.vectors * kStep; i < shape.vectors * kStep + shape.rest; ++i) {
      const auto value = load<float>(x + i);
      const auto g = static_cast<double>(gradient_of<float, kRelu>(value, load<float>(dy + i), single));
      gradient += g;
      product += g * static_cast<double>(value - single.mean);
    }
    sums.gradient.at[0] = gradient;
    sums.product.at[0] = product;
  } else {
    for (int i = 0; i < kBlock; ++i) {
      sums.gradient.at[i] = gradients[i];
      sums.product.at[i] = products[i];
    }
  }
}

template <int kBlock, bool kRelu, class T>
[[gnu::flatten]] void gradient(const NormTile& n, const NormGradientChannels& channels, T* dx) {
  const T *x = static_cast<const T*>(n.x), *dy = static_cast<const T*>(n.dy);
  using V = typename Shape<kBlock>::V;
  const Shape<kBlock> shape(n.tile);
  constexpr int64_t kStep = Shape<kBlock>::kStep;
  const auto norm = normalization<V, kBlock>(n.channels);
  const NormalizationGradient<V> slope{channels_in<V, kBlock>(channels.slope), channels_in<V, kBlock>(channels.offset)};
  for (int64_t i = 0; i < shape.vectors; ++i) {
    const V value = load<V>(x + i * kStep);
    const V g = gradient_of<V, kRelu>(value, load<V>(dy + i * kStep), norm);
    store(kernels::normalized_gradient(value, g, norm, slope), dx + i * kStep);
  }
  const auto single = normalization<float, 1>(n.channels);
  const NormalizationGradient<float> single_slope{channels.slope.at[0], channels.offset.at[0]};
  for (int64_t i = shape.vectors * kStep; i < shape.vectors * kStep + shape.rest; ++i) {
    const auto value = load<float>(x + i);
    const float g = gradient_of<float, kRelu>(value, load<float>(dy + i), single);
    store(kernels::normalized_gradient(value, g, single, single_slope), dx + i);
  }
}

}  // namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE
