// The parameter update, element by element in double (update.h has the formulas).
#include <algorithm>
#include <cmath>

#include "backend/reference/loops.h"
#include "backend/step_rules.h"

namespace lockstep::reference {
namespace {

// One element of every arena.
template <class T>
struct Element {
  double gradient;  // scaled
  double weight_decay;
  T& value;
  T& slot0;
  T& slot1;
};

template <class T>
void apply_sgd(const ApplyOptimizer& op, const T* scalars, const Element<T>& at) {
  const double gradient = at.gradient + at.weight_decay * at.value;
  const double momentum = op.momentum * at.slot0 + gradient;
  at.slot0 = static_cast<T>(momentum);
  at.value = static_cast<T>(at.value - scalars[kLearningRate] * momentum);
}

template <class T>
void apply_rmsprop_tf(const ApplyOptimizer& op, const T* scalars, const Element<T>& at) {
  const double gradient = at.gradient + at.weight_decay * at.value;
  const double mean_square = at.slot0 + (1 - op.decay) * (gradient * gradient - at.slot0);
  const double momentum =
      op.momentum * at.slot1 + scalars[kLearningRate] * gradient / std::sqrt(mean_square + op.epsilon);
  at.slot0 = static_cast<T>(mean_square);
  at.slot1 = static_cast<T>(momentum);
  at.value = static_cast<T>(at.value - momentum);
}

template <class T>
void apply_adamw(const ApplyOptimizer& op, const T* scalars, const Element<T>& at) {
  const double average = op.beta1 * at.slot0 + (1 - op.beta1) * at.gradient;
  const double square = op.beta2 * at.slot1 + (1 - op.beta2) * at.gradient * at.gradient;
  const double rate = scalars[kLearningRate];
  const double decayed = at.value * (1 - rate * at.weight_decay);
  at.slot0 = static_cast<T>(average);
  at.slot1 = static_cast<T>(square);
  at.value =
      static_cast<T>(decayed - rate * (average / scalars[kBias1]) / (std::sqrt(square / scalars[kBias2]) + op.epsilon));
}

}  // namespace

template <class T>
void loops(const ApplyOptimizer& op, const Call<T>& call) {
  const T *gradients = call.input(0), *scalars = call.input(1);
  T *values = call.output(0), *slot0 = call.output(1);
  T* slot1 = call.output(call.args.outputs.size() - 1);  // unused by optimizers with one slot
  if (scalars[kSkip] != 0) return;
  for (const UpdateSegment& segment : op.segments) {
#pragma omp parallel for num_threads(call.threads)
    for (int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
      const Element<T> at{double{scalars[kGradientScale]} * gradients[i], segment.weight_decay, values[i], slot0[i],
                          slot1[i]};
      switch (op.kind) {
        case OptimizerKind::sgd:
          apply_sgd(op, scalars, at);
          break;
        case OptimizerKind::rmsprop_tf:
          apply_rmsprop_tf(op, scalars, at);
          break;
        case OptimizerKind::adamw:
          apply_adamw(op, scalars, at);
          break;
      }
    }
  }
}

template <class T>
void loops(const ApplyAverage& op, const Call<T>& call) {
  if (call.input(1)[kSkip] != 0) return;
  const double weight = 1 - double{call.input(1)[kAverageDecay]};
  T* averages = call.output(0);
  for (int64_t i = 0; i < op.count; ++i) {
    averages[i] = static_cast<T>(averages[i] + weight * (double{call.input(0)[i]} - averages[i]));
  }
}

template <class T>
void loops(const ApplyStatistics& op, const Call<T>& call) {
  if (call.input(1)[kSkip] != 0) return;
  const T* moments = call.input(0);
  T* statistics = call.output(0);
  const double samples = call.input(1)[kSampleCount];
  for (const ApplyStatistics::Entry& entry : op.entries) {
    const double count = samples * static_cast<double>(entry.spatial);
    for (int64_t c = 0; c < entry.channels; ++c) {
      T &mean = statistics[entry.mean_offset + c], &var = statistics[entry.var_offset + c];
      const double shift = moments[entry.mean_offset + c] / samples;
      const double biased = std::max(moments[entry.var_offset + c] / samples - shift * shift, 0.0);
      mean = static_cast<T>(mean + op.momentum * shift);
      var = static_cast<T>(var + op.momentum * (biased * count / (count - 1) - var));
    }
  }
}

template <class T>
void loops(const SumOfSquares& op, const Call<T>& call) {
  const T* values = call.input(0);
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < op.count; ++i) sum += double{values[i]} * values[i];
  call.template output<double>(0)[0] = sum;
}

template <class T>
void loops(const FillStepHeader& op, const Call<T>& call) {
  T loss = 0;
  for (size_t i = 0; i < op.head_weights.size(); ++i) {
    loss += static_cast<T>(op.head_weights[i]) * call.input(2 + i)[0];
  }
  fill_step_header(*call.template input<StepControl>(0), call.template input<int32_t>(1), loss, call.output(0),
                   call.template output<StepOutcome>(1));
}

template <class T>
void loops(const DecideUpdate& op, const Call<T>& call) {
  decide_update<T>(rule_of(op), {.header = call.input(0),
                                 .squares = call.template input<double>(1)[0],
                                 .control = *call.template input<StepControl>(2),
                                 .scalars = call.output(0),
                                 .state = call.template output<UpdateState>(1),
                                 .outcome = call.template output<StepOutcome>(2)});
}

LOCKSTEP_REFERENCE_LOOPS(ApplyOptimizer);
LOCKSTEP_REFERENCE_LOOPS(ApplyAverage);
LOCKSTEP_REFERENCE_LOOPS(ApplyStatistics);
LOCKSTEP_REFERENCE_LOOPS(SumOfSquares);
LOCKSTEP_REFERENCE_LOOPS(FillStepHeader);
LOCKSTEP_REFERENCE_LOOPS(DecideUpdate);

}  // namespace lockstep::reference
