// Implements train.not_finite: how steps with a non-finite loss or gradient are handled.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/comm/group/process_group.h"
#include "lockstep/train/compiled_model.h"
#include "lockstep/train/device_step_state.h"

namespace lockstep {

// Every rank has one, owned by the trainer and used by the thread that runs the step. The group and the model must
// outlive it. Every rank gets the same outcomes in the same order, so all ranks make the same decisions.
class NonFiniteSteps {
 public:
  NonFiniteSteps(ProcessGroup& group, const CompiledModel& model, const Config::Train& train)
      : group_(group), model_(model), rule_(train.not_finite), half_(train.precision == Precision::fp16) {}

  // Records that a step has changed the weights.
  void applied() { skipped_in_a_row_ = overflows_in_a_row_ = 0; }
  // Records that a step was skipped and the loss scale lowered. Returns what to warn of: empty unless it was the eighth
  // in a row.
  std::string overflowed(double loss_scale);
  // Collective. Records that all ranks have skipped `step`. Returns whether the run must roll back to a checkpoint.
  // Throws AgreedError(numerics) if the rule does not allow any further skip.
  bool skip(int64_t step, const StepOutcome& outcome);
  // Returns what was non-finite, and on which ranks, at the last skipped step.
  const std::string& where() const { return where_; }
  // Records that the run has rolled back to a checkpoint and returns a sentence about it for the log.
  std::string went_back(int64_t from, const std::string& to);

 private:
  std::string describe(int64_t step, const StepOutcome& outcome);

  ProcessGroup& group_;
  const CompiledModel& model_;
  const NonFiniteRule rule_;
  const bool half_;  // gradients are float16, with a loss scale
  int skipped_in_a_row_ = 0, overflows_in_a_row_ = 0;
  int rollbacks_ = 0;
  bool gradients_overflow_ = false;  // at the last skipped step, with a loss scale of 1
  std::string where_;
};

}  // namespace lockstep
