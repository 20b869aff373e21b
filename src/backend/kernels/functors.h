// Elementwise formulas, shared by all backends with kernels of our own. V is the operand of one instruction: a float (a
// CUDA thread, the end of a row) or a vector of float lanes (CPU). Formulas use + - * and the functions of
// LaneFunctions.
#pragma once

// Always inlined, because files compiled for different instruction sets must not share a copy.
#if defined(__CUDACC__)
#define LOCKSTEP_FORMULA __host__ __device__ __forceinline__
#else
#define LOCKSTEP_FORMULA __attribute__((always_inline)) inline
#endif

namespace lockstep::kernels {

// The functions that differ between a float and a vector; specialized beside the vector type.
template <class V>
struct LaneFunctions {
  LOCKSTEP_FORMULA static V select(bool condition, V yes, V no) { return condition ? yes : no; }
};

// A NaN passes, so that a diverged run is noticed.
template <class V>
LOCKSTEP_FORMULA V relu(V x) {
  return LaneFunctions<V>::select(x <= V(0), V(0), x);
}

// Gradient of a ReLU from its output, or from anything of the same sign.
template <class V>
LOCKSTEP_FORMULA V relu_gradient(V y, V dy) {
  return LaneFunctions<V>::select(y <= V(0), V(0), dy);
}

template <class V>
LOCKSTEP_FORMULA V relu6(V x) {
  return LaneFunctions<V>::select(x >= V(6), V(6), relu(x));
}
template <class V>
LOCKSTEP_FORMULA V relu6_gradient(V y, V dy) {
  return LaneFunctions<V>::select(y >= V(6), V(0), relu_gradient(y, dy));
}

// A rank's contribution to the moments of the global batch (BatchMoments).
template <class V>
LOCKSTEP_FORMULA void moment_terms(V samples, const V& mean, const V& var, const V& running_mean, V& first, V& second) {
  const V d = mean - running_mean;
  first = samples * d;
  second = samples * (var + d * d);
}

template <class V>
LOCKSTEP_FORMULA V ema(V average, V value, V weight) {
  return average + weight * (value - average);
}

// Batch norm of one channel (Ioffe and Szegedy 2015); factor = scale / sqrt(var + epsilon). The mean is subtracted
// first: folding it into the shift would lose digits if it is large compared with the deviation.
template <class V>
struct Normalization {
  V mean, factor, shift;
};
template <class V>
LOCKSTEP_FORMULA V normalized(V x, const Normalization<V>& norm) {
  return (x - norm.mean) * norm.factor + norm.shift;
}

// With g the gradient of the normalized value (behind the ReLU, if any), n values in the channel, d = 1 / sqrt(var +
// epsilon), dshift = sum of g and dscale = d * sum of g (x - mean):
//   dx = factor * (g - (dshift + (x - mean) d dscale) / n) = factor g - slope (x - mean) - offset
template <class V>
struct NormalizationGradient {
  V slope;   // factor * d * dscale / n
  V offset;  // factor * dshift / n
};
template <class V>
LOCKSTEP_FORMULA V normalized_gradient(V x, V g, const Normalization<V>& norm,
                                       const NormalizationGradient<V>& gradient) {
  return norm.factor * g - gradient.slope * (x - norm.mean) - gradient.offset;
}

// The mean of a number of values and M2, the sum of their squared distances from it, as in Welford's algorithm: added
// piece by piece, so that nothing cancels (Chan, Golub and LeVeque 1983). MomentShare holds the factors that depend
// only on the two counts.
template <class T>
struct MomentShare {
  T share, cross;
  LOCKSTEP_FORMULA MomentShare(T count, T added) : share(added / (count + added)), cross(count * share) {}

  LOCKSTEP_FORMULA void add(T added_mean, T added_m2, T& mean, T& m2) const {
    const T distance = added_mean - mean;
    mean += distance * share;
    m2 += added_m2 + distance * distance * cross;
  }
};

template <class T>
struct Moments {
  T count = 0, mean = 0, m2 = 0;

  LOCKSTEP_FORMULA void add(const Moments& other) {
    if (other.count == T(0)) return;
    MomentShare<T>(count, other.count).add(other.mean, other.m2, mean, m2);
    count += other.count;
  }
};

}  // namespace lockstep::kernels
