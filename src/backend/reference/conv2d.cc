// Convolution and its two gradients, as sums over kernel taps of rows along W.
#include <algorithm>

#include "backend/reference/compute.h"

namespace lockstep::reference {
namespace {

// One spatial axis: output o reads input o * stride + k - pad with kernel tap k.
struct Axis {
  int64_t input, output, kernel, stride, pad;

  int64_t first(int64_t k) const { return k < pad ? (pad - k + stride - 1) / stride : 0; }
  int64_t end(int64_t k) const { return std::min(output, (input - 1 + pad - k + stride) / stride); }
  int64_t read(int64_t o, int64_t k) const { return o * stride + k - pad; }
};

struct Geometry {
  Axis h, w;
  int64_t channels_in, channels_out, batch;
  int64_t group_in, group_out;  // channels of a group

  Geometry(const Window& window, const Shape& x, const Shape& y, int64_t groups)
      : h{x.h(), y.h(), window.kernel_h, window.stride_h, window.pad_h},
        w{x.w(), y.w(), window.kernel_w, window.stride_w, window.pad_w},
        channels_in(x.c()),
        channels_out(y.c()),
        batch(x.n()),
        group_in(x.c() / groups),
        group_out(y.c() / groups) {
    // For a 1x1 kernel the plane is one long row, so that the inner loops are long.
    if (window == Window{}) {
      w.input = w.output = x.h() * x.w();
      h.input = h.output = 1;
    }
  }
  int64_t first_input(int64_t o) const { return o / group_out * group_in; }  // of the channels that output o reads
  int64_t taps() const { return h.kernel * w.kernel; }
  int64_t x_plane() const { return h.input * w.input; }
  int64_t y_plane() const { return h.output * w.output; }
};

// A row of outputs: `count` elements of their plane from element y on. Output j reads element x + j * stride of the
// input plane with this tap.
struct Row {
  int64_t tap, y, x, count, stride;
};

// Visits every pair of an output and an input that a kernel plane connects, except inputs in the padding.
template <class Visit>
void for_each_row(const Geometry& g, Visit&& visit) {
  for (int64_t kh = 0; kh < g.h.kernel; ++kh) {
    for (int64_t kw = 0; kw < g.w.kernel; ++kw) {
      const int64_t first = g.w.first(kw), count = g.w.end(kw) - first;
      if (count <= 0) continue;
      for (int64_t oh = g.h.first(kh); oh < g.h.end(kh); ++oh) {
        visit(Row{.tap = kh * g.w.kernel + kw,
                  .y = oh * g.w.output + first,
                  .x = g.h.read(oh, kh) * g.w.input + g.w.read(first, kw),
                  .count = count,
                  .stride = g.w.stride});
      }
    }
  }
}

}  // namespace

template <class T>
void Reference<T>::compute(const Conv2d& op, const Call<T>& call) {
  const Geometry g(op.window, call.in_shape(0), call.out_shape(0), op.groups);
  const T* weights = call.input(1);
#pragma omp parallel for collapse(2) num_threads(call.threads)
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t o = 0; o < g.channels_out; ++o) {
      double* sums = call.scratch();
      std::fill_n(sums, g.y_plane(), op.bias ? double{call.input(2)[o]} : 0.0);
      for (int64_t i = 0; i < g.group_in; ++i) {
        const T* x = call.input(0) + (n * g.channels_in + g.first_input(o) + i) * g.x_plane();
        const T* kernel = weights + (o * g.group_in + i) * g.taps();
        for_each_row(g, [&](const Row& row) {
          const double weight = kernel[row.tap];
          for (int64_t j = 0; j < row.count; ++j) sums[row.y + j] += weight * x[row.x + j * row.stride];
        });
      }
      T* y = call.output(0) + (n * g.channels_out + o) * g.y_plane();
      for (int64_t j = 0; j < g.y_plane(); ++j) y[j] = static_cast<T>(sums[j]);
    }
  }
}

template <class T>
void Reference<T>::compute(const Conv2dGradInput& op, const Call<T>& call) {
  const Geometry g(op.window, call.out_shape(0), call.in_shape(0), op.groups);
  const T* weights = call.input(1);
#pragma omp parallel for collapse(2) num_threads(call.threads)
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t i = 0; i < g.channels_in; ++i) {
      double* sums = call.scratch();
      std::fill_n(sums, g.x_plane(), 0.0);
      const int64_t first = i / g.group_in * g.group_out;
      for (int64_t o = first; o < first + g.group_out; ++o) {
        const T* dy = call.input(0) + (n * g.channels_out + o) * g.y_plane();
        const T* kernel = weights + (o * g.group_in + i % g.group_in) * g.taps();
        for_each_row(g, [&](const Row& row) {
          const double weight = kernel[row.tap];
          for (int64_t j = 0; j < row.count; ++j) sums[row.x + j * row.stride] += weight * dy[row.y + j];
        });
      }
      T* dx = call.output(0) + (n * g.channels_in + i) * g.x_plane();
      for (int64_t j = 0; j < g.x_plane(); ++j) dx[j] = static_cast<T>(sums[j]);
    }
  }
}

template <class T>
void Reference<T>::compute(const Conv2dGradWeights& op, const Call<T>& call) {
  const Geometry g(op.window, call.in_shape(0), call.in_shape(1), op.groups);
#pragma omp parallel for collapse(2) num_threads(call.threads)
  for (int64_t o = 0; o < g.channels_out; ++o) {
    for (int64_t i = 0; i < g.group_in; ++i) {
      double* sums = call.scratch();
      std::fill_n(sums, g.taps(), 0.0);
      for (int64_t n = 0; n < g.batch; ++n) {
        const T* x = call.input(0) + (n * g.channels_in + g.first_input(o) + i) * g.x_plane();
        const T* dy = call.input(1) + (n * g.channels_out + o) * g.y_plane();
        for_each_row(g, [&](const Row& row) {
          double sum = 0;
#pragma omp simd reduction(+ : sum)
          for (int64_t j = 0; j < row.count; ++j) sum += double{dy[row.y + j]} * x[row.x + j * row.stride];
          sums[row.tap] += sum;
        });
      }
      T* dweights = call.output(0) + (o * g.group_in + i) * g.taps();
      for (int64_t tap = 0; tap < g.taps(); ++tap) dweights[tap] = static_cast<T>(sums[tap]);
    }
  }
  if (!op.bias) return;
  for (int64_t o = 0; o < g.channels_out; ++o) {
    double sum = 0;
    for (int64_t n = 0; n < g.batch; ++n) {
      const T* dy = call.input(1) + (n * g.channels_out + o) * g.y_plane();
      for (int64_t j = 0; j < g.y_plane(); ++j) sum += dy[j];
    }
    call.output(1)[o] = static_cast<T>(sum);
  }
}

namespace {

// relu(slope x + offset), rounded as the image is.
template <class T>
std::vector<T> normalized_image(const Call<T>& call, size_t slope) {
  const Shape& shape = call.in_shape(0);
  const int64_t plane = shape.h() * shape.w();
  std::vector<T> image(static_cast<size_t>(shape.elements()));
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const int64_t c = i / plane % shape.c();
    const double value = double{call.input(slope)[c]} * call.input(0)[i] + call.input(slope + 1)[c];
    image[static_cast<size_t>(i)] = static_cast<T>(value <= 0 ? 0 : value);
  }
  return image;
}

}  // namespace

template <class T>
void Reference<T>::compute(const Conv2dStatistics& op, const Call<T>& call) {
  const std::vector<T> image = op.normalized ? normalized_image(call, 2) : std::vector<T>{};
  with_image(call, 0, op.normalized ? image.data() : call.input(0),
             [&](const Call<T>& inner) { compute(Conv2d{op.window}, inner); });
  const Shape& shape = call.out_shape(0);
  for (int64_t c = 0; c < shape.c(); ++c) {
    double sum = 0, squares = 0;
    Channel(shape, c).for_each([&](int64_t i) {
      const double y = call.output(0)[i];
      sum += y;
      squares += y * y;
    });
    call.output(1)[c] = static_cast<T>(sum);
    call.output(2)[c] = static_cast<T>(squares);
  }
}

template <class T>
void Reference<T>::compute(const Conv2dNormalizedGradWeights& op, const Call<T>& call) {
  const std::vector<T> image = normalized_image(call, 2);
  with_image(call, 0, image.data(), [&](const Call<T>& inner) { compute(Conv2dGradWeights{op.window}, inner); });
}

template <class T>
void Reference<T>::compute(const Conv2dGradInputNorm& op, const Call<T>& call) {
  compute(Conv2dGradInput{op.window, op.input}, call);
  const T *x = call.input(2), *scale = call.input(3), *shift = call.input(4);
  T* dz = call.output(0);
  for (int64_t c = 0; c < op.input.c(); ++c) {
    const Channel channel(op.input, c);
    const double mean = call.input(5)[c], inverse = call.input(6)[c], factor = scale[c] * inverse;
    double dscale = 0, dshift = 0;
    channel.for_each([&](int64_t i) {
      if ((x[i] - mean) * factor + shift[c] <= 0) dz[i] = 0;
      dshift += dz[i];
      dscale += dz[i] * (x[i] - mean) * inverse;
    });
    call.output(1)[c] = static_cast<T>(dscale);
    call.output(2)[c] = static_cast<T>(dshift);
    call.output(3)[c] = static_cast<T>(factor);
    call.output(4)[c] = static_cast<T>(-factor * inverse * dscale / channel.count());
    call.output(5)[c] = static_cast<T>(factor * (inverse * dscale * mean - dshift) / channel.count());
  }
}

LOCKSTEP_REFERENCE_COMPUTE(Conv2dStatistics);
LOCKSTEP_REFERENCE_COMPUTE(Conv2dNormalizedGradWeights);
LOCKSTEP_REFERENCE_COMPUTE(Conv2dGradInputNorm);
LOCKSTEP_REFERENCE_COMPUTE(Conv2d);
LOCKSTEP_REFERENCE_COMPUTE(Conv2dGradInput);
LOCKSTEP_REFERENCE_COMPUTE(Conv2dGradWeights);

}  // namespace lockstep::reference
