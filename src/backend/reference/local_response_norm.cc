// Local response normalization across channels (Krizhevsky et al. 2012) and its gradient.
#include <algorithm>
#include <cmath>

#include "backend/reference/compute.h"

namespace lockstep::reference {
namespace {

// The channels of one position (n, h, w): element c is at offset + c * stride.
template <class Norm, class T>
struct Position {
  const Norm& op;
  const T* x;
  int64_t channels, stride;

  // f summed over the window of channels around c.
  template <class F>
  double around(int64_t c, F&& f) const {
    const int64_t half = op.size / 2;
    double sum = 0;
    for (int64_t j = std::max<int64_t>(c - half, 0); j <= std::min(c + half, channels - 1); ++j) sum += f(j);
    return sum;
  }
  double value(int64_t c) const { return x[c * stride]; }
  double denominator(int64_t c) const {
    const double squares = around(c, [&](int64_t j) { return value(j) * value(j); });
    return op.k + op.alpha / static_cast<double>(op.size) * squares;
  }
};

// visit(offset of channel 0), for every position of a [N,C,H,W] tensor.
template <class Visit>
void for_each_position(const Shape& shape, int threads, Visit&& visit) {
  const int64_t plane = shape.h() * shape.w();
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t n = 0; n < shape.n(); ++n) {
    for (int64_t j = 0; j < plane; ++j) visit(n * shape.c() * plane + j);
  }
}

}  // namespace

template <class T>
void Reference<T>::compute(const LocalResponseNorm& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const int64_t plane = shape.h() * shape.w();
  for_each_position(shape, call.threads, [&](int64_t offset) {
    const Position<LocalResponseNorm, T> at{op, call.input(0) + offset, shape.c(), plane};
    T* y = call.output(0) + offset;
    for (int64_t c = 0; c < shape.c(); ++c) {
      y[c * plane] = static_cast<T>(at.value(c) * std::pow(at.denominator(c), -op.beta));
    }
  });
}

// With s the denominator: dx_c = dy_c s_c^-beta - 2 alpha beta / size x_c * sum of dy_j x_j s_j^(-beta-1) around c.
template <class T>
void Reference<T>::compute(const LocalResponseNormGrad& op, const Call<T>& call) {
  const Shape& shape = call.in_shape(0);
  const int64_t plane = shape.h() * shape.w();
  const double factor = 2 * op.alpha * op.beta / static_cast<double>(op.size);
  for_each_position(shape, call.threads, [&](int64_t offset) {
    const Position<LocalResponseNormGrad, T> at{op, call.input(0) + offset, shape.c(), plane};
    const T* dy = call.input(1) + offset;
    T* dx = call.output(0) + offset;
    for (int64_t c = 0; c < shape.c(); ++c) {
      const double others = at.around(
          c, [&](int64_t j) { return dy[j * plane] * at.value(j) * std::pow(at.denominator(j), -op.beta - 1); });
      dx[c * plane] =
          static_cast<T>(dy[c * plane] * std::pow(at.denominator(c), -op.beta) - factor * at.value(c) * others);
    }
  });
}

LOCKSTEP_REFERENCE_COMPUTE(LocalResponseNorm);
LOCKSTEP_REFERENCE_COMPUTE(LocalResponseNormGrad);

}  // namespace lockstep::reference
