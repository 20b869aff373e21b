// Embedding sums and their gradients.
#include <vector>

#include "backend/reference/compute.h"

namespace lockstep::reference {

template <class T>
void Reference<T>::compute(const EmbeddingBag&, const Call<T>& call) {
  const int64_t batch = call.in_shape(1)[0], most = call.in_shape(1)[1], width = call.out_shape(0)[1];
#pragma omp parallel for num_threads(call.threads)
  for (int64_t n = 0; n < batch; ++n) {
    const int32_t* ids = call.template input<int32_t>(1) + n * most;
    const T* values = call.input(2) + n * most;
    for (int64_t d = 0; d < width; ++d) {
      double sum = call.input(3)[d];
      for (int64_t l = 0; l < most && ids[l] >= 0; ++l) sum += double{values[l]} * call.input(0)[ids[l] * width + d];
      call.output(0)[n * width + d] = static_cast<T>(sum);
    }
  }
}

template <class T>
void Reference<T>::compute(const EmbeddingBagGrad& op, const Call<T>& call) {
  const int64_t batch = call.in_shape(1)[0], most = call.in_shape(1)[1], width = call.in_shape(0)[1];
#pragma omp parallel for num_threads(call.threads)
  for (int64_t d = 0; d < width; ++d) {
    std::vector<double> sums(op.vocabulary);
    double bias = 0;
    for (int64_t n = 0; n < batch; ++n) {
      const int32_t* ids = call.template input<int32_t>(1) + n * most;
      const double dy = call.input(0)[n * width + d];
      bias += dy;
      for (int64_t l = 0; l < most && ids[l] >= 0; ++l) {
        sums[ids[l]] += dy * call.input(2)[n * most + l];
      }
    }
    for (int64_t v = 0; v < op.vocabulary; ++v) {
      call.output(0)[v * width + d] = static_cast<T>(sums[v]);
    }
    call.output(1)[d] = static_cast<T>(bias);
  }
}

LOCKSTEP_REFERENCE_COMPUTE(EmbeddingBag);
LOCKSTEP_REFERENCE_COMPUTE(EmbeddingBagGrad);

}  // namespace lockstep::reference
