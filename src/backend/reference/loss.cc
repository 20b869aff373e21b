// Softmax and cross-entropy with label smoothing, stable for any finite logits.
#include <algorithm>
#include <cmath>

#include "backend/reference/compute.h"
#include "lockstep/base/error.h"

namespace lockstep::reference {
namespace {

// Returns how many classes come before `label` when classes are sorted by descending logit, ties by class number. A NaN
// comes first, so that no sample of a diverged run counts as correct.
template <class T>
int64_t rank_of(std::span<const T> logits, size_t label) {
  int64_t rank = 0;
  for (size_t k = 0; k < logits.size(); ++k) {
    if (k == label) continue;
    rank += k < label ? !(logits[k] < logits[label]) : !(logits[k] <= logits[label]);
  }
  return rank;
}

template <class T>
double log_of_sum_of_exp(std::span<const T> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (T logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

}  // namespace

template <class T>
void Reference<T>::compute(const SoftmaxCrossEntropy& op, const Call<T>& call) {
  const int64_t batch = call.in_shape(0)[0], classes = call.in_shape(0)[1];
  int32_t correct[2] = {0, 0};
  double loss = 0;
  for (int64_t n = 0; n < batch; ++n) {
    const std::span<const T> logits(call.input(0) + n * classes, classes);
    const double log_sum = log_of_sum_of_exp(logits);
    for (int64_t k = 0; k < classes; ++k) {
      call.output(0)[n * classes + k] = static_cast<T>(std::exp(logits[k] - log_sum));
    }
    const double weight = call.input(2)[n];
    if (weight == 0) continue;
    const int32_t label = call.template input<int32_t>(1)[n];
    require(label >= 0 && label < classes, "label {} among {} classes", label, classes);
    double mean = 0;  // of the cross-entropy against every class
    for (T logit : logits) mean += (log_sum - logit) / static_cast<double>(classes);
    loss += weight * ((1 - op.label_smoothing) * (log_sum - logits[label]) + op.label_smoothing * mean);
    const int64_t rank = rank_of(logits, label);
    correct[0] += rank < 1;
    correct[1] += rank < 5;
  }
  call.output(1)[0] = static_cast<T>(loss);
  std::copy_n(correct, 2, call.template output<int32_t>(2));
}

template <class T>
void Reference<T>::compute(const SoftmaxCrossEntropyGrad& op, const Call<T>& call) {
  const int64_t batch = call.in_shape(0)[0], classes = call.in_shape(0)[1];
  const double scale = op.scale * (call.in.size() > 3 ? call.input(3)[0] : T{1});
  for (int64_t n = 0; n < batch; ++n) {
    const double weight = scale * call.input(2)[n];
    const int32_t label = call.template input<int32_t>(1)[n];
    for (int64_t k = 0; k < classes; ++k) {
      const double target =
          op.label_smoothing / static_cast<double>(classes) + (k == label ? 1 - op.label_smoothing : 0);
      const double difference = call.input(0)[n * classes + k] - target;
      call.output(0)[n * classes + k] = static_cast<T>(weight == 0 ? 0 : weight * difference);
    }
  }
}

LOCKSTEP_REFERENCE_COMPUTE(SoftmaxCrossEntropy);
LOCKSTEP_REFERENCE_COMPUTE(SoftmaxCrossEntropyGrad);

}  // namespace lockstep::reference
