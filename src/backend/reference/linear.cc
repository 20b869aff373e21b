// The fully connected layer and its gradients.
#include <algorithm>

#include "backend/reference/compute.h"

namespace lockstep::reference {

template <class T>
void Reference<T>::compute(const Linear& op, const Call<T>& call) {
  const int64_t batch = call.in_shape(0)[0], in = call.in_shape(0)[1], out = call.out_shape(0)[1];
#pragma omp parallel for collapse(2) num_threads(call.threads)
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t o = 0; o < out; ++o) {
      const T* x = call.input(0) + n * in;
      const T* weights = call.input(1) + o * in;
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < in; ++i) sum += double{x[i]} * weights[i];
      call.output(0)[n * out + o] = static_cast<T>(op.bias ? sum + call.input(2)[o] : sum);
    }
  }
}

template <class T>
void Reference<T>::compute(const LinearGradInput&, const Call<T>& call) {
  const int64_t batch = call.out_shape(0)[0], in = call.out_shape(0)[1], out = call.in_shape(0)[1];
#pragma omp parallel for num_threads(call.threads)
  for (int64_t n = 0; n < batch; ++n) {
    double* sums = call.scratch();
    std::fill_n(sums, in, 0.0);
    for (int64_t o = 0; o < out; ++o) {
      const double dy = call.input(0)[n * out + o];
      const T* weights = call.input(1) + o * in;
      for (int64_t i = 0; i < in; ++i) sums[i] += dy * weights[i];
    }
    for (int64_t i = 0; i < in; ++i) call.output(0)[n * in + i] = static_cast<T>(sums[i]);
  }
}

template <class T>
void Reference<T>::compute(const LinearGradWeights& op, const Call<T>& call) {
  const int64_t batch = call.in_shape(0)[0], in = call.in_shape(0)[1], out = call.in_shape(1)[1];
#pragma omp parallel for num_threads(call.threads)
  for (int64_t o = 0; o < out; ++o) {
    double* sums = call.scratch();
    std::fill_n(sums, in, 0.0);
    double bias = 0;
    for (int64_t n = 0; n < batch; ++n) {
      const double dy = call.input(1)[n * out + o];
      const T* x = call.input(0) + n * in;
      bias += dy;
      for (int64_t i = 0; i < in; ++i) sums[i] += dy * x[i];
    }
    for (int64_t i = 0; i < in; ++i) call.output(0)[o * in + i] = static_cast<T>(sums[i]);
    if (op.bias) call.output(1)[o] = static_cast<T>(bias);
  }
}

LOCKSTEP_REFERENCE_COMPUTE(Linear);
LOCKSTEP_REFERENCE_COMPUTE(LinearGradInput);
LOCKSTEP_REFERENCE_COMPUTE(LinearGradWeights);

}  // namespace lockstep::reference
