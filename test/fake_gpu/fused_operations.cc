#include "test/fake_gpu/fused_operations.h"

#include <vector>

namespace lockstep::fake_gpu {
namespace {

// Calls body(n, c, h, w) for each element.
template <class Body>
void for_each_element(const DnnTensor& tensor, const Body& body) {
  const auto& d = tensor.dims;
  for (int64_t n = 0; n < d[0]; ++n) {
    for (int64_t h = 0; h < d[2]; ++h) {
      for (int64_t w = 0; w < d[3]; ++w) {
        for (int64_t c = 0; c < d[1]; ++c) body(n, c, h, w);
      }
    }
  }
}

int64_t offset(const DnnTensor& t, int64_t n, int64_t c, int64_t h, int64_t w) {
  const auto step = [&](size_t dimension, int64_t i) { return t.dims[dimension] == 1 ? 0 : i * t.strides[dimension]; };
  return step(0, n) + step(1, c) + step(2, h) + step(3, w);
}

float at(const DnnTensor& t, int64_t n, int64_t c, int64_t h, int64_t w) {
  return read(t.element, t.data, offset(t, n, c, h, w));
}

bool fits(const DnnTensor& tensor, const DnnTensor& whole) {
  for (size_t i = 0; i < 4; ++i) {
    if (tensor.dims[i] != 1 && tensor.dims[i] != whole.dims[i]) return false;
  }
  return true;
}

bool is_vector(const DnnTensor& tensor, int64_t channels) {
  return tensor.dims == std::array<int64_t, 4>{1, channels, 1, 1};
}

float value(PointwiseMode mode, float a, float b) {
  switch (mode) {
    case PointwiseMode::add:
      return a + b;
    case PointwiseMode::multiply:
      return a * b;
    case PointwiseMode::subtract:
      return a - b;
    case PointwiseMode::relu:
      return a < 0 ? 0 : a;  // a value that is not a number stays
    case PointwiseMode::relu_gradient:
      return b > 0 ? a : 0;
  }
  return 0;
}

}  // namespace

const char* Pointwise::trouble() const {
  if (!fits(a, out)) return "a pointwise operation's input has another size than its output";
  if (mode != PointwiseMode::relu && !fits(b, out)) return "a pointwise operation's inputs have other sizes";
  return nullptr;
}

void Pointwise::run() const {
  for_each_element(out, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const float first = static_cast<float>(alpha1) * at(a, n, c, h, w);
    const float second = mode == PointwiseMode::relu ? 0 : static_cast<float>(alpha2) * at(b, n, c, h, w);
    write(out.element, out.data, offset(out, n, c, h, w), value(mode, first, second));
  });
}

const char* ChannelStatistics::trouble() const {
  if (!is_vector(sum, x.dims[1]) || !is_vector(squares, x.dims[1])) return "sums of another number of channels";
  return nullptr;
}

void ChannelStatistics::run() const {
  std::vector<double> sums(static_cast<size_t>(x.dims[1])), square_sums(sums.size());
  for_each_element(x, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const double v = at(x, n, c, h, w);
    sums[static_cast<size_t>(c)] += v;
    square_sums[static_cast<size_t>(c)] += v * v;
  });
  for (int64_t c = 0; c < x.dims[1]; ++c) {
    write(sum.element, sum.data, offset(sum, 0, c, 0, 0), static_cast<float>(sums[static_cast<size_t>(c)]));
    write(squares.element, squares.data, offset(squares, 0, c, 0, 0),
          static_cast<float>(square_sums[static_cast<size_t>(c)]));
  }
}

const char* NormGradients::trouble() const {
  if (x.dims != dy.dims) return "a batch norm's input and its gradient have other sizes";
  for (const DnnTensor* vector : {&mean, &inverse_deviation, &scale, &dscale, &dbias, &by_dy, &by_x, &constant}) {
    if (!is_vector(*vector, x.dims[1])) return "a batch norm's vector has another number of channels";
  }
  return nullptr;
}

void NormGradients::run() const {
  const auto channels = static_cast<size_t>(x.dims[1]);
  std::vector<double> bias_sums(channels), scale_sums(channels);
  for_each_element(x, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const double gradient = at(dy, n, c, h, w), centered = at(x, n, c, h, w) - at(mean, 0, c, 0, 0);
    bias_sums[static_cast<size_t>(c)] += gradient;
    scale_sums[static_cast<size_t>(c)] += gradient * centered * at(inverse_deviation, 0, c, 0, 0);
  });
  const auto count = static_cast<double>(x.dims[0] * x.dims[2] * x.dims[3]);
  const auto set = [](const DnnTensor& to, int64_t c, double v) {
    write(to.element, to.data, offset(to, 0, c, 0, 0), static_cast<float>(v));
  };
  for (int64_t c = 0; c < x.dims[1]; ++c) {
    const double of_bias = bias_sums[static_cast<size_t>(c)], of_scale = scale_sums[static_cast<size_t>(c)];
    const double inverse = at(inverse_deviation, 0, c, 0, 0), slope = at(scale, 0, c, 0, 0) * inverse;
    set(dbias, c, of_bias);
    set(dscale, c, of_scale);
    set(by_dy, c, slope);
    set(by_x, c, -slope * inverse * of_scale / count);
    set(constant, c, slope * (inverse * of_scale * at(mean, 0, c, 0, 0) - of_bias) / count);
  }
}

}  // namespace lockstep::fake_gpu
