// The parameter update, element by element in double (update.h has the formulas).
#include <algorithm>
#include <cmath>

#include "backend/optimizer_rules.h"
#include "backend/reference/compute.h"
#include "backend/step_rules.h"
#include "lockstep/tensor/half.h"

namespace lockstep::reference {
namespace {

template <class T>
double trust_of(const ApplyOptimizer& op, const UpdateSegment& segment, const Call<T>& call) {
  if (!segment.adaptive) return 1;
  kernels::SegmentSquares squares;
  for (int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
    const double gradient = call.input(0)[i], value = call.output(0)[i];
    squares.values += value * value;
    squares.gradients += gradient * gradient;
  }
  return kernels::lars_trust({op.trust, segment.weight_decay, call.input(1)[kGradientScale]}, squares);
}

}  // namespace

template <class T>
void Reference<T>::compute(const ApplyOptimizer& op, const Call<T>& call) {
  if (call.input(1)[kSkip] != 0) return;
  const kernels::OptimizerConstants<double> of_step(op, call.input(1));
  kernels::with_rule(op, [&]<class Rule>(Rule) {
    const T* gradients = call.input(0);
    T *values = call.output(0), *slot0 = call.output(1), *slot1 = Rule::kSlots > 1 ? call.output(2) : nullptr;
    for (const UpdateSegment& segment : op.segments) {
      const auto constants = of_step.with_rate_factor(segment.rate_factor);
      const kernels::SegmentConstants<double> own{segment.weight_decay, trust_of(op, segment, call)};
#pragma omp parallel for num_threads(call.threads)
      for (int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
        kernels::OptimizerElement<double> e{constants.gradient_scale * gradients[i], values[i], slot0[i],
                                            slot1 ? slot1[i] : T{0}};
        Rule::apply(constants, own, e);
        values[i] = static_cast<T>(e.value);
        slot0[i] = static_cast<T>(e.slot0);
        if (slot1) slot1[i] = static_cast<T>(e.slot1);
      }
    }
  });
}

template <class T>
void Reference<T>::compute(const ApplyAverage& op, const Call<T>& call) {
  if (call.input(1)[kSkip] != 0) return;
  const double weight = 1 - double{call.input(1)[kAverageDecay]};
  T* averages = call.output(0);
  for (int64_t i = 0; i < op.count; ++i) {
    averages[i] = static_cast<T>(averages[i] + weight * (double{call.input(0)[i]} - averages[i]));
  }
}

template <class T>
void Reference<T>::compute(const ApplyStatistics& op, const Call<T>& call) {
  if (call.input(1)[kSkip] != 0) return;
  const T* moments = call.input(0);
  T* statistics = call.output(0);
  const double samples = call.input(1)[kSampleCount];
  for (const ApplyStatistics::Entry& entry : op.entries) {
    const StatisticsRule rule{samples, samples * static_cast<double>(entry.spatial), op.momentum};
    for (int64_t c = 0; c < entry.channels; ++c) {
      const int64_t mean = entry.mean_offset + c, var = entry.var_offset + c;
      update_running_stats(rule, moments[mean], moments[var], statistics[mean], statistics[var]);
    }
  }
}

template <class T>
void Reference<T>::compute(const SumOfSquares& op, const Call<T>& call) {
  const T* values = call.input(0);
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < op.count; ++i) sum += double{values[i]} * values[i];
  call.template output<double>(0)[0] = sum;
}

template <class T>
void Reference<T>::compute(const AddToSums& op, const Call<T>& call) {
  for (int64_t i = 0; i < op.count; ++i) call.output(0)[i] += call.input(0)[i];
}

template <class T>
void Reference<T>::compute(const DowncastValues& op, const Call<T>& call) {
  auto* to = call.template output<uint16_t>(0);
  for (int64_t i = 0; i < op.count; ++i) {
    const auto value = static_cast<float>(call.input(0)[i]);
    to[i] = op.to == DType::bf16 ? to_bf16(value) : to_f16(value);
  }
}

template <class T>
void Reference<T>::compute(const UpcastValues& op, const Call<T>& call) {
  const auto* from = call.template input<uint16_t>(0);
  for (int64_t i = 0; i < op.count; ++i) {
    call.output(0)[i] = op.from == DType::bf16 ? from_bf16(from[i]) : from_f16(from[i]);
  }
}

template <class T>
void Reference<T>::compute(const FindNonFinite& op, const Call<T>& call) {
  if (std::isfinite(call.template input<double>(1)[0])) return;
  const T* values = call.input(0);
  const T* bad = std::find_if(values, values + op.count, [](T x) { return !std::isfinite(x); });
  if (bad != values + op.count) call.template output<StepOutcome>(0)->bad_gradient = static_cast<double>(bad - values);
}

template <class T>
void Reference<T>::compute(const FillStepHeader& op, const Call<T>& call) {
  T loss = 0;
  for (size_t i = 0; i < op.head_weights.size(); ++i) {
    loss += static_cast<T>(op.head_weights[i]) * call.input(2 + i)[0];
  }
  fill_step_header(*call.template input<StepControl>(0), call.template input<int32_t>(1), loss, call.output(0),
                   call.template output<StepOutcome>(1));
}

template <class T>
void Reference<T>::compute(const DecideUpdate& op, const Call<T>& call) {
  decide_update<T>(rule_of(op), {.header = call.input(0),
                                 .squares = call.template input<double>(1)[0],
                                 .control = *call.template input<StepControl>(2),
                                 .scalars = call.output(0),
                                 .state = call.template output<UpdateState>(1),
                                 .outcome = call.template output<StepOutcome>(2)});
}

LOCKSTEP_REFERENCE_COMPUTE(ApplyOptimizer);
LOCKSTEP_REFERENCE_COMPUTE(ApplyAverage);
LOCKSTEP_REFERENCE_COMPUTE(ApplyStatistics);
LOCKSTEP_REFERENCE_COMPUTE(SumOfSquares);
LOCKSTEP_REFERENCE_COMPUTE(AddToSums);
LOCKSTEP_REFERENCE_COMPUTE(DowncastValues);
LOCKSTEP_REFERENCE_COMPUTE(UpcastValues);
LOCKSTEP_REFERENCE_COMPUTE(FindNonFinite);
LOCKSTEP_REFERENCE_COMPUTE(FillStepHeader);
LOCKSTEP_REFERENCE_COMPUTE(DecideUpdate);

}  // namespace lockstep::reference
