// The formulas of FillStepHeader, DecideUpdate and ApplyStatistics, shared by all backends.
#pragma once

#include <cmath>
#include <cstdint>

#include "lockstep/backend/step_header.h"
#include "lockstep/backend/update.h"

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep {

// The attributes of DecideUpdate, as arguments of kernels.
struct DecideRule {
  double clip_norm, beta1, beta2, average_decay;
  bool halt, scale_loss;
};

// The loss scale doubles after this many updates, up to a value that keeps the loss itself far from overflow.
constexpr double kSteadySteps = 2000;
constexpr double kLargestLossScale = 16777216;
inline DecideRule rule_of(const DecideUpdate& op) {
  return {op.clip_norm, op.beta1, op.beta2, op.average_decay, op.halt, op.scale_loss};
}

// Writes a count as its two elements (StepHeader): multiples of kCountUnit, and the rest.
template <class T>
LOCKSTEP_HOST_DEVICE inline void put_count(T* header, HeaderElement rest_at, HeaderElement units_at, double count) {
  const double units = std::floor(count / static_cast<double>(kCountUnit));
  header[units_at] = static_cast<T>(units);
  header[rest_at] = static_cast<T>(count - units * static_cast<double>(kCountUnit));
}

template <class T>
LOCKSTEP_HOST_DEVICE inline double count_in(const T* header, HeaderElement rest_at, HeaderElement units_at) {
  return static_cast<double>(header[units_at]) * static_cast<double>(kCountUnit) + static_cast<double>(header[rest_at]);
}

// `loss`: the weighted sum over all heads.
template <class T>
LOCKSTEP_HOST_DEVICE inline void fill_step_header(const StepControl& control, const int32_t* correct, T loss, T* header,
                                                  StepOutcome* outcome) {
  for (int64_t i = 0; i < kStepHeaderElements; ++i) header[i] = 0;
  put_count(header, kHeaderSamples, kHeaderSamplesUnits, control.samples);
  header[kHeaderLoss] = loss;
  put_count(header, kHeaderCorrect1, kHeaderCorrect1Units, correct[0]);
  put_count(header, kHeaderCorrect5, kHeaderCorrect5Units, correct[1]);
  header[kHeaderStop] = static_cast<T>(control.stop);
  header[kHeaderSave] = static_cast<T>(control.save);
  header[kHeaderNotFinite] = static_cast<T>(std::isfinite(loss) ? 0 : 1);
  outcome->own_loss += static_cast<double>(loss);
}

template <class T>
struct DecideArgs {
  const T* header;
  double squares;
  StepControl control;
  T* scalars;
  UpdateState* state;
  StepOutcome* outcome;
};

LOCKSTEP_HOST_DEVICE inline void update_loss_scale(bool applied, bool overflowed, UpdateState& state) {
  if (overflowed) {
    state.loss_scale /= 2;
    state.steady_steps = 0;
  } else if (applied && (state.steady_steps += 1) >= kSteadySteps) {
    state.loss_scale = state.loss_scale * 2 < kLargestLossScale ? state.loss_scale * 2 : kLargestLossScale;
    state.steady_steps = 0;
  }
}

template <class T>
LOCKSTEP_HOST_DEVICE inline void decide_update(const DecideRule& rule, const DecideArgs<T>& args) {
  const T* header = args.header;
  UpdateState& state = *args.state;
  const double samples = count_in(header, kHeaderSamples, kHeaderSamplesUnits);
  const double scale = 1.0 / (samples * state.loss_scale);
  const double norm = std::sqrt(args.squares) * scale;
  const bool finite = header[kHeaderNotFinite] == 0 && std::isfinite(norm);
  const bool overflowed = rule.scale_loss && header[kHeaderNotFinite] == 0 && !finite && state.loss_scale > 1;
  if (rule.halt && !finite && !overflowed) state.halted = 1;
  const bool applied = finite && state.halted == 0;
  if (applied) state.updates += 1;
  if (rule.scale_loss) update_loss_scale(applied, overflowed, state);

  const double clipped = rule.clip_norm > 0 && norm > rule.clip_norm ? rule.clip_norm / norm : 1.0;
  const double n = state.updates;
  T* scalars = args.scalars;
  scalars[kLearningRate] = static_cast<T>(args.control.learning_rate);
  scalars[kGradientScale] = static_cast<T>(scale * clipped);
  scalars[kBias1] = static_cast<T>(1 - std::pow(rule.beta1, n));
  scalars[kBias2] = static_cast<T>(1 - std::pow(rule.beta2, n));
  const double warmup_decay = (1 + n) / (10 + n);
  scalars[kAverageDecay] = static_cast<T>(warmup_decay < rule.average_decay ? warmup_decay : rule.average_decay);
  scalars[kSampleCount] = static_cast<T>(samples);
  scalars[kSkip] = static_cast<T>(applied ? 0 : 1);
  scalars[kLossScale] = static_cast<T>(state.loss_scale);

  StepOutcome& outcome = *args.outcome;
  outcome.samples = samples;
  outcome.loss = static_cast<double>(header[kHeaderLoss]);
  outcome.correct1 = count_in(header, kHeaderCorrect1, kHeaderCorrect1Units);
  outcome.correct5 = count_in(header, kHeaderCorrect5, kHeaderCorrect5Units);
  outcome.stop = static_cast<double>(header[kHeaderStop]);
  outcome.save = static_cast<double>(header[kHeaderSave]);
  outcome.not_finite = static_cast<double>(header[kHeaderNotFinite]);
  outcome.norm = norm;
  outcome.applied = applied ? 1 : 0;
  outcome.updates = state.updates;
  outcome.loss_scale = state.loss_scale;
  outcome.steady_steps = state.steady_steps;
  outcome.overflowed = overflowed ? 1 : 0;
}

// One channel of ApplyStatistics (update.h), in double. count: values of the channel in the global batch.
struct StatisticsRule {
  double samples, count, momentum;
};
template <class T>
LOCKSTEP_HOST_DEVICE inline void update_running_stats(const StatisticsRule& rule, T first, T second, T& mean, T& var) {
  const double shift = static_cast<double>(first) / rule.samples;
  const double raw = static_cast<double>(second) / rule.samples - shift * shift;
  const double biased = raw < 0 ? 0 : raw;
  mean = static_cast<T>(static_cast<double>(mean) + rule.momentum * shift);
  const double unbiased = biased * rule.count / (rule.count - 1);
  var = static_cast<T>(static_cast<double>(var) + rule.momentum * (unbiased - static_cast<double>(var)));
}

}  // namespace lockstep
