#include "test/fake_gpu/convolution.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::fake_gpu {
namespace {

// sums[0..width) += factors[i] * lines[i][0..width), for all i. All three directions are made of it.
__attribute__((target_clones("avx512f", "avx2", "default"))) void add_products(float* __restrict sums,
                                                                               const float* __restrict factors,
                                                                               int64_t count,
                                                                               const float* __restrict lines,
                                                                               int64_t width) {
  int64_t i = 0;
  for (; i + 3 < count; i += 4) {
    const float* const l = lines + i * width;
    const float a = factors[i], b = factors[i + 1], c = factors[i + 2], d = factors[i + 3];
    for (int64_t j = 0; j < width; ++j) {
      sums[j] += a * l[j] + b * l[width + j] + (c * l[2 * width + j] + d * l[3 * width + j]);
    }
  }
  for (; i < count; ++i) {
    const float* const l = lines + i * width;
    for (int64_t j = 0; j < width; ++j) sums[j] += factors[i] * l[j];
  }
}

// A tensor as floats in another order of dimensions, the last one along memory.
struct Packed {
  std::array<int64_t, 4> dims{}, strides{};  // of the tensor, in the order of the copy
  std::vector<float> values;

  Packed(const DnnTensor& tensor, const std::array<size_t, 4>& order) {
    for (size_t i = 0; i < 4; ++i) {
      dims[i] = tensor.dims[order[i]];
      strides[i] = tensor.strides[order[i]];
    }
    values.resize(static_cast<size_t>(dims[0] * dims[1] * dims[2] * dims[3]));
  }
  // Calls body(place in the copy, place in the tensor).
  template <class Body>
  void for_each(const Body& body) const {
    size_t i = 0;
    for (int64_t a = 0; a < dims[0]; ++a) {
      for (int64_t b = 0; b < dims[1]; ++b) {
        for (int64_t c = 0; c < dims[2]; ++c) {
          const int64_t line = a * strides[0] + b * strides[1] + c * strides[2];
          for (int64_t d = 0; d < dims[3]; ++d) body(i++, line + d * strides[3]);
        }
      }
    }
  }
  void load(const DnnTensor& from) {
    for_each([&](size_t i, int64_t at) { values[i] = read(from.element, from.data, at); });
  }
  void store(const DnnTensor& to, double alpha, double beta) const {
    for_each([&](size_t i, int64_t at) {
      const double before = beta == 0 ? 0 : beta * read(to.element, to.data, at);
      write(to.element, to.data, at, static_cast<float>(alpha * values[i] + before));
    });
  }
  float* line(int64_t a, int64_t b, int64_t c) { return values.data() + ((a * dims[1] + b) * dims[2] + c) * dims[3]; }
};

constexpr std::array<size_t, 4> kImage{0, 2, 3, 1};            // [N,H,W,C]
constexpr std::array<size_t, 4> kWeightsToOutput{2, 3, 1, 0};  // [R,S,C,K]
constexpr std::array<size_t, 4> kWeightsToInput{2, 3, 0, 1};   // [R,S,K,C]

// Calls body(r, s, n, p, q, h, w) for each place of y that tap (r, s) takes from a place of x that is there.
template <class Body>
void for_each_pair(const Convolution& c, int64_t r, int64_t s, const Body& body) {
  for (int64_t n = 0; n < c.y.dims[0]; ++n) {
    for (int64_t p = 0; p < c.y.dims[2]; ++p) {
      const int64_t h = p * c.stride[0] - c.padding[0] + r * c.dilation[0];
      if (h < 0 || h >= c.x.dims[2]) continue;
      for (int64_t q = 0; q < c.y.dims[3]; ++q) {
        const int64_t w = q * c.stride[1] - c.padding[1] + s * c.dilation[1];
        if (w >= 0 && w < c.x.dims[3]) body(n, p, q, h, w);
      }
    }
  }
}

template <class Body>
void for_each_tap(const Convolution& c, const Body& body) {
  for (int64_t r = 0; r < c.weights.dims[2]; ++r) {
    for (int64_t s = 0; s < c.weights.dims[3]; ++s) body(r, s);
  }
}

void forward(const Convolution& c) {
  Packed x(c.x, kImage), weights(c.weights, kWeightsToOutput), y(c.y, kImage);
  x.load(c.x);
  weights.load(c.weights);
  for_each_tap(c, [&](int64_t r, int64_t s) {
    for_each_pair(c, r, s, [&](int64_t n, int64_t p, int64_t q, int64_t h, int64_t w) {
      add_products(y.line(n, p, q), x.line(n, h, w), x.dims[3], weights.line(r, s, 0), y.dims[3]);
    });
  });
  y.store(c.y, c.alpha, c.beta);
}

void grad_input(const Convolution& c) {
  Packed dx(c.x, kImage), weights(c.weights, kWeightsToInput), dy(c.y, kImage);
  weights.load(c.weights);
  dy.load(c.y);
  for_each_tap(c, [&](int64_t r, int64_t s) {
    for_each_pair(c, r, s, [&](int64_t n, int64_t p, int64_t q, int64_t h, int64_t w) {
      add_products(dx.line(n, h, w), dy.line(n, p, q), dy.dims[3], weights.line(r, s, 0), dx.dims[3]);
    });
  });
  dx.store(c.x, c.alpha, c.beta);
}

// A tap's pairs are gathered, so that the sum over them runs along memory: its inputs a channel, its outputs a pair.
void grad_weights(const Convolution& c) {
  Packed x(c.x, kImage), dweights(c.weights, kWeightsToOutput), dy(c.y, kImage);
  x.load(c.x);
  dy.load(c.y);
  const int64_t channels = x.dims[3], outputs = dy.dims[3];
  std::vector<const float*> inputs;
  std::vector<float> lines, factors;
  for_each_tap(c, [&](int64_t r, int64_t s) {
    inputs.clear();
    lines.clear();
    for_each_pair(c, r, s, [&](int64_t n, int64_t p, int64_t q, int64_t h, int64_t w) {
      inputs.push_back(x.line(n, h, w));
      const float* const line = dy.line(n, p, q);
      lines.insert(lines.end(), line, line + outputs);
    });
    factors.resize(inputs.size());
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (size_t i = 0; i < inputs.size(); ++i) factors[i] = inputs[i][channel];
      add_products(dweights.line(r, s, channel), factors.data(), static_cast<int64_t>(factors.size()), lines.data(),
                   outputs);
    }
  });
  dweights.store(c.weights, c.alpha, c.beta);
}

// What belongs to one of the groups, which divide dimension `dim`.
DnnTensor part_of(DnnTensor tensor, size_t dim, int64_t groups, int64_t group) {
  tensor.dims[dim] /= groups;
  const int64_t begin = group * tensor.dims[dim] * tensor.strides[dim];
  tensor.data = static_cast<std::byte*>(tensor.data) + static_cast<size_t>(begin) * bytes_of(tensor.element);
  return tensor;
}

}  // namespace

size_t DnnTensor::bytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < 4; ++i) last += (dims[i] - 1) * strides[i];
  return static_cast<size_t>(last + 1) * bytes_of(element);
}

const DnnTensor& Convolution::result() const {
  if (direction == ConvDirection::forward) return y;
  return direction == ConvDirection::grad_input ? x : weights;
}

const char* Convolution::trouble() const {
  if (x.dims[0] != y.dims[0]) return "x and y have other numbers of images";
  const int64_t groups = x.dims[1] / weights.dims[1];  // as cuDNN takes it from the sizes
  if (groups == 0 || x.dims[1] != groups * weights.dims[1] || weights.dims[0] % groups != 0) {
    return "x and the weights have other numbers of channels";
  }
  if (y.dims[1] != weights.dims[0]) return "y and the weights have other numbers of channels";
  for (size_t i = 0; i < 2; ++i) {
    const int64_t window = (weights.dims[2 + i] - 1) * dilation[i] + 1;
    if ((x.dims[2 + i] + 2 * padding[i] - window) / stride[i] + 1 != y.dims[2 + i]) return "y has another size";
  }
  return nullptr;
}

void Convolution::run() const {
  const int64_t groups = x.dims[1] / weights.dims[1];
  for (int64_t group = 0; group < groups; ++group) {
    Convolution one = *this;
    one.x = part_of(x, 1, groups, group);
    one.weights = part_of(weights, 0, groups, group);
    one.y = part_of(y, 1, groups, group);
    if (direction == ConvDirection::forward) forward(one);
    if (direction == ConvDirection::grad_input) grad_input(one);
    if (direction == ConvDirection::grad_weights) grad_weights(one);
  }
}

}  // namespace lockstep::fake_gpu
