// train.not_finite: what becomes of steps with a non-finite loss or gradient.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/comm/group/process_group.h"
#include "lockstep/train/compiled_model.h"
#include "lockstep/train/device_step_state.h"

namespace lockstep {

struct NonFiniteOptions {
  NonFiniteRule rule = NonFiniteRule::stop;
  double wait_seconds = 600;
};

// One a rank, owned by the trainer, for the thread that runs the step; group and program must outlive it. Every rank
// meets the same outcomes in the same order, so all decide alike.
class NonFiniteSteps {
 public:
  NonFiniteSteps(ProcessGroup& group, const CompiledModel& model, NonFiniteOptions options)
      : group_(group), model_(model), options_(std::move(options)) {}

  // A step has changed the weights.
  void applied() { skipped_in_a_row_ = 0; }
  // Collective. `step` was skipped by all ranks. Returns whether the run is to go back to a checkpoint. Throws
  // AgreedError(numerics) when the rule allows no more of it.
  bool skip(int64_t step, const StepOutcome& outcome);
  // What was not finite, and on which ranks, at the last step that was skipped.
  const std::string& where() const { return where_; }
  // The run is back at a checkpoint; returns the sentence that says so.
  std::string went_back(int64_t from, const std::string& to);

 private:
  std::string describe(int64_t step, const StepOutcome& outcome);

  ProcessGroup& group_;
  const CompiledModel& model_;
  const NonFiniteOptions options_;
  int skipped_in_a_row_ = 0;
  int rollbacks_ = 0;
  std::string where_;
};

}  // namespace lockstep
