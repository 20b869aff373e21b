#include "train/run_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {

int64_t samples_of(double epochs, int64_t samples_per_epoch) {
  const double product = epochs * static_cast<double>(samples_per_epoch);
  const double whole = std::round(product);
  const bool is_whole = std::abs(product - whole) <= 4 * std::numeric_limits<double>::epsilon() * product;
  return static_cast<int64_t>(is_whole ? whole : std::ceil(product));
}

int64_t total_steps(const Config::Train& train, const DataPlan& plan, const Progress& start) {
  if (train.epochs == 0) return train.steps;
  const int64_t left = std::max<int64_t>(0, samples_of(train.epochs, plan.samples_per_epoch) - start.position);
  const int64_t by_epochs = start.step + (left + plan.global_batch - 1) / plan.global_batch;
  return train.steps > 0 ? std::min(train.steps, by_epochs) : by_epochs;
}

int64_t next_evaluation(double every_epochs, int64_t samples_per_epoch, int64_t position) {
  if (every_epochs == 0) return std::numeric_limits<int64_t>::max();
  const auto end_of = [&](double period) { return samples_of(period * every_epochs, samples_per_epoch); };
  double period = std::floor(static_cast<double>(position) / static_cast<double>(samples_per_epoch) / every_epochs) + 1;
  // Correct the quotient, which may be off by one because of rounding.
  while (period > 1 && end_of(period - 1) > position) --period;
  while (end_of(period) <= position) ++period;
  return end_of(period);
}

bool evaluation_due_at(const Config::Eval& eval, const DataPlan& plan, const Progress& at) {
  if (at.step == 0) return false;
  if (eval.every_steps > 0) return at.step % eval.every_steps == 0;
  const int64_t before = std::max<int64_t>(0, at.position - plan.global_batch);
  return next_evaluation(eval.every_epochs, plan.samples_per_epoch, before) <= at.position;
}

}  // namespace lockstep
