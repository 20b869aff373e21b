#include "lockstep/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Increases from 0 at the end of warm-up to 1 at the end of the run.
double progress(const LearningRateSchedule& s, int64_t step) {
  if (step <= s.warmup_steps) return 0;
  if (step >= s.total_steps) return 1;
  return static_cast<double>(step - s.warmup_steps) / static_cast<double>(s.total_steps - s.warmup_steps);
}

double staircase(const LearningRateSchedule& s, int64_t step) {
  constexpr double kRounding = 1e-9;  // tolerance for quotients that rounding moved below a whole number
  return std::pow(s.decay_rate, std::floor(static_cast<double>(step) / s.decay_steps + kRounding));
}

double pieces(const LearningRateSchedule& s, int64_t step) {
  const auto passed = std::ranges::upper_bound(s.boundaries, step) - s.boundaries.begin();
  return passed == 0 ? 1 : s.factors[passed - 1];
}

double cosine(const LearningRateSchedule& s, int64_t step) {
  const double t = progress(s, step);
  return t < 1 ? 0.5 * (1 + std::cos(std::numbers::pi * t)) : 0;
}

// Returns the factor of the rate at a step, without warm-up.
double factor(const LearningRateSchedule& s, int64_t step) {
  switch (s.kind) {
    case ScheduleKind::constant:
      return 1;
    case ScheduleKind::exponential:
    case ScheduleKind::step:
      return staircase(s, step);
    case ScheduleKind::piecewise:
      return pieces(s, step);
    case ScheduleKind::cosine:
      return cosine(s, step);
    case ScheduleKind::linear:
      return 1 - progress(s, step);
  }
  return 1;
}

}  // namespace

double LearningRateSchedule::rate(int64_t step) const {
  const double rate = base_rate * factor(*this, step);
  return step < warmup_steps ? rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps) : rate;
}

double base_learning_rate(const Config::Optimizer& config, int64_t global_batch) {
  constexpr double kReferenceBatch = 256;
  return config.lr * (config.scale_lr ? static_cast<double>(global_batch) / kReferenceBatch : 1);
}

LearningRateSchedule make_learning_rate_schedule(const Config& config, const RunLength& length) {
  const Config::Schedule& schedule = config.schedule;
  require(length.samples_per_epoch > 0 && length.global_batch > 0, "{} samples an epoch in batches of {}",
          length.samples_per_epoch, length.global_batch);
  const auto steps = [&](double epochs) {
    return static_cast<double>(length.samples_per_epoch) * epochs / static_cast<double>(length.global_batch);
  };
  LearningRateSchedule made{.kind = schedule.name,
                            .base_rate = base_learning_rate(config.optimizer, length.global_batch),
                            .warmup_steps = std::llround(steps(schedule.warmup_epochs)),
                            .total_steps = length.total_steps,
                            .decay_rate = schedule.decay_rate,
                            .decay_steps = steps(schedule.decay_epochs),
                            .factors = schedule.factors};
  if (schedule.name == ScheduleKind::exponential) made.decay_steps = std::max(1.0, std::floor(made.decay_steps));
  for (const double boundary : schedule.boundaries) {
    made.boundaries.push_back(static_cast<int64_t>(std::ceil(steps(boundary) * (1 - 1e-12))));  // tolerates rounding
  }
  return made;
}

}  // namespace lockstep
