// Elementwise operations.
#include "backend/host.h"
#include "backend/kernels/functors.h"
#include "backend/reference/compute.h"

namespace lockstep::reference {

template <class T>
void Reference<T>::compute(const Relu& op, const Call<T>& call) {
  const T* x = call.input(0);
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    call.output(0)[i] = op.six ? kernels::relu6(x[i]) : kernels::relu(x[i]);
  }
}

template <class T>
void Reference<T>::compute(const ReluGrad& op, const Call<T>& call) {
  const T *y = call.input(0), *dy = call.input(1);
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    call.output(0)[i] = op.six ? kernels::relu6_gradient(y[i], dy[i]) : kernels::relu_gradient(y[i], dy[i]);
  }
}

// The output may be the memory of the first summand.
template <class T>
void Reference<T>::compute(const Add&, const Call<T>& call) {
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < call.in.size(); ++k) sum += call.input(k)[i];
    call.output(0)[i] = static_cast<T>(sum);
  }
}

template <class T>
void Reference<T>::compute(const Dropout& op, const Call<T>& call) {
  const DropoutMask mask(op, std::span<const int32_t, 4>(call.template input<int32_t>(1), 4));
  const double factor = 1 / (1 - op.rate);
  const int64_t batch = call.in_shape(0).n(), elements = call.in_shape(0).elements() / batch;
  for (int64_t n = 0; n < batch; ++n) {
    const uint64_t first = mask.counter(n, elements);
    const T* x = call.input(0) + n * elements;
    T* y = call.output(0) + n * elements;
    for (int64_t i = 0; i < elements; ++i) {
      y[i] = mask.keeps(first + static_cast<uint64_t>(i)) ? static_cast<T>(x[i] * factor) : T{0};
    }
  }
}

LOCKSTEP_REFERENCE_COMPUTE(Relu);
LOCKSTEP_REFERENCE_COMPUTE(ReluGrad);
LOCKSTEP_REFERENCE_COMPUTE(Add);
LOCKSTEP_REFERENCE_COMPUTE(Dropout);

}  // namespace lockstep::reference
