// Softmax and cross-entropy with label smoothing, stable for any finite logits. Rows are shared among the threads, and
// their losses are added in order, so that the result does not depend on the number of threads.
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/loops.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kGrain = 4;  // rows

struct RowResult {
  double loss = 0;
  int64_t rank = -1;  // of the label among the logits; -1: the sample is left out
};

// Returns how many classes come before `label` when classes are sorted by descending logit, ties by class number. A NaN
// comes first, so that no sample of a diverged run counts as correct.
int64_t rank_of(std::span<const float> logits, size_t label) {
  int64_t rank = 0;
  for (size_t k = 0; k < logits.size(); ++k) {
    if (k == label) continue;
    rank += k < label ? !(logits[k] < logits[label]) : !(logits[k] <= logits[label]);
  }
  return rank;
}

// Writes the probabilities and returns the logarithm of their denominator.
double softmax(std::span<const float> logits, float* probabilities) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (size_t k = 0; k < logits.size(); ++k) {
    probabilities[k] = std::exp(logits[k] - largest);
    sum += probabilities[k];
  }
  const auto scale = static_cast<float>(1 / sum);
  for (size_t k = 0; k < logits.size(); ++k) probabilities[k] *= scale;
  return largest + std::log(sum);
}

RowResult cross_entropy(std::span<const float> logits, double log_sum, size_t label, double smoothing) {
  double total = 0;
  for (const float logit : logits) total += logit;
  const double mean = log_sum - total / static_cast<double>(logits.size());  // of the cross-entropy against every class
  return {(1 - smoothing) * (log_sum - logits[label]) + smoothing * mean, rank_of(logits, label)};
}

// Called before the parallel region, because no exception may leave it.
void check_labels(std::span<const int32_t> labels, const float* weights, int64_t classes) {
  for (const int32_t label : labels) {
    const bool counts = *weights++ != 0;
    require(!counts || (label >= 0 && label < classes), "label {} among {} classes", label, classes);
  }
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const SoftmaxCrossEntropy& op, Descs inputs, Descs) {
  const int64_t batch = inputs[0].shape[0], classes = inputs[0].shape[1];
  const auto body = [op, batch, classes, threads = context.threads](const KernelArgs& args) {
    auto* rows = static_cast<RowResult*>(args.workspace);
    const std::span labels(input<int32_t>(args, 1), batch);
    check_labels(labels, input(args, 2), classes);
    parallel_ranges(threads, batch, kGrain, [&](Range range, int) {
      for (int64_t n = range.begin; n < range.end; ++n) {
        const std::span logits(input(args, 0) + n * classes, classes);
        const double log_sum = softmax(logits, output(args, 0) + n * classes);
        const float weight = input(args, 2)[n];
        rows[n] = {};
        if (weight == 0) continue;
        rows[n] = cross_entropy(logits, log_sum, labels[n], op.label_smoothing);
        rows[n].loss *= weight;
      }
    });
    double loss = 0;
    int32_t correct[2] = {0, 0};
    for (int64_t n = 0; n < batch; ++n) {
      loss += rows[n].loss;
      correct[0] += rows[n].rank == 0;
      correct[1] += rows[n].rank >= 0 && rows[n].rank < 5;
    }
    output(args, 1)[0] = static_cast<float>(loss);
    std::copy_n(correct, 2, output<int32_t>(args, 2));
  };
  return make_loop_kernel(body, batch * sizeof(RowResult));
}

std::unique_ptr<Kernel> compile(const Context& context, const SoftmaxCrossEntropyGrad& op, Descs inputs, Descs) {
  const int64_t batch = inputs[0].shape[0], classes = inputs[0].shape[1];
  return make_loop_kernel([op, batch, classes, threads = context.threads](const KernelArgs& args) {
    const auto everywhere = static_cast<float>(op.label_smoothing / static_cast<double>(classes));
    const auto at_label = static_cast<float>(1 - op.label_smoothing);
    const double of_all = op.scale * (args.inputs.size() > 3 ? input(args, 3)[0] : 1.0F);
    parallel_ranges(threads, batch, kGrain, [&](Range range, int) {
      for (int64_t n = range.begin; n < range.end; ++n) {
        const float* probabilities = input(args, 0) + n * classes;
        float* gradient = output(args, 0) + n * classes;
        const auto scale = static_cast<float>(of_all * input(args, 2)[n]);
        const int32_t label = input<int32_t>(args, 1)[n];
        for (int64_t k = 0; k < classes; ++k) {
          const float target = everywhere + (k == label ? at_label : 0);
          gradient[k] = scale == 0 ? 0 : scale * (probabilities[k] - target);
        }
      }
    });
  });
}

}  // namespace lockstep::cpu
