#include "lockstep/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

double cosine_factor(int64_t step, int64_t start, int64_t end) {
  if (step <= start) return 1;
  if (step >= end) return 0;
  const double progress = static_cast<double>(step - start) / static_cast<double>(end - start);
  return 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace

double LearningRateSchedule::rate(int64_t step) const {
  double rate = base_rate;
  if (name == "exponential") {
    rate *= std::pow(decay_rate, static_cast<double>(step / decay_steps));
  } else if (name == "cosine") {
    rate *= cosine_factor(step, warmup_steps, total_steps);
  }
  if (step < warmup_steps) rate *= static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  return rate;
}

LearningRateSchedule make_learning_rate_schedule(const Config& config, const RunLength& length) {
  const Config::Schedule& schedule = config.schedule;
  if (schedule.name != "constant" && schedule.name != "exponential" && schedule.name != "cosine") {
    fail(ExitCode::config, "schedule.name = '{}' does not exist; there are constant, exponential and cosine",
         schedule.name);
  }
  require(length.samples_per_epoch > 0 && length.global_batch > 0, "{} samples an epoch in batches of {}",
          length.samples_per_epoch, length.global_batch);
  const auto samples = static_cast<double>(length.samples_per_epoch);
  const auto batch = static_cast<double>(length.global_batch);
  constexpr double kReferenceBatch = 256;  // of the linear scaling rule (Goyal et al. 2017)
  return {.name = schedule.name,
          .base_rate = config.optimizer.lr * (config.optimizer.scale_lr ? batch / kReferenceBatch : 1),
          .warmup_steps = std::llround(samples * schedule.warmup_epochs / batch),
          .total_steps = length.total_steps,
          .decay_rate = schedule.decay_rate,
          .decay_steps = std::max<int64_t>(1, static_cast<int64_t>(samples * schedule.decay_epochs / batch))};
}

}  // namespace lockstep
