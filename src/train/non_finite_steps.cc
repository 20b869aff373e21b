#include "lockstep/train/non_finite_steps.h"

#include <cmath>
#include <string_view>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/rank_names.h"
#include "train/audit.h"

namespace lockstep {
namespace {

constexpr std::string_view kAdvice =
    "Lower optimizer.lr, add warm-up or clipping (train.clip_norm), or set train.not_finite = \"skip\" or \"rollback\"";
constexpr std::string_view kHalfAdvice =
    "Set train.precision = \"bf16\", or lower optimizer.lr if the loss was growing. If batch norms see two values per "
    "channel, as with two small images, their gradients explode in any precision: raise train.batch_size or "
    "model.image_size";
constexpr int kMostSkipsInARow = 10;
constexpr int kOverflowsBeforeWarning = 8;
constexpr int kSkipsBeforeRollback = 3;
constexpr int kMostRollbacks = 3;

}  // namespace

std::string NonFiniteSteps::overflowed(double loss_scale) {
  if (++overflows_in_a_row_ != kOverflowsBeforeWarning) return {};
  return fmt::format(
      "gradients have overflowed float16 in {} steps in a row, and none of these changed the weights; the loss scale "
      "is now {}",
      overflows_in_a_row_, loss_scale);
}

bool NonFiniteSteps::skip(int64_t step, const StepOutcome& outcome) {
  where_ = describe(step, outcome);
  ++skipped_in_a_row_;
  const bool back = rule_ == NonFiniteRule::rollback && skipped_in_a_row_ >= kSkipsBeforeRollback;
  if (rule_ == NonFiniteRule::stop || (rule_ == NonFiniteRule::skip && skipped_in_a_row_ > kMostSkipsInARow) ||
      (back && rollbacks_ == kMostRollbacks)) {
    const std::string tried =
        rollbacks_ > 0 ? fmt::format(", again after {} to a checkpoint", counted(rollbacks_, "return")) : "";
    throw AgreedError(ExitCode::numerics, fmt::format("{}{}; the weights are those of the step before. {}", where_,
                                                      tried, gradients_overflow_ ? kHalfAdvice : kAdvice));
  }
  return back;
}

// Collective: every rank comes here at the same step, because the reduced flags that lead here are equal on all ranks.
std::string NonFiniteSteps::describe(int64_t step, const StepOutcome& outcome) {
  const int64_t mine = !std::isfinite(outcome.own_loss);
  const auto flags = group_.all_gather(std::span(&mine, 1), {"the report of non-finite values"});
  std::vector<int> where;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (flags[rank]) where.push_back(rank);
  }
  gradients_overflow_ = half_ && where.empty();
  if (!where.empty())
    return fmt::format("step {}: the loss is not finite on {}", step, fold_ranks(where, group_.hosts()));
  return fmt::format("step {}: the gradient of {} {}", step, parameter_at(model_, outcome.bad_gradient),
                     half_ ? "is not finite in float16, even with a loss scale of 1" : "is not finite");
}

std::string NonFiniteSteps::went_back(int64_t from, const std::string& to) {
  ++rollbacks_;
  skipped_in_a_row_ = overflows_in_a_row_ = 0;
  return fmt::format("{}; back from step {} to {} ({} of {} times)", where_, from, to, rollbacks_, kMostRollbacks);
}

}  // namespace lockstep
