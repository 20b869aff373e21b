// The work of a step on its batch: forward, backward, all-reduce, update.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lockstep/comm/transport/gradient_reducer.h"
#include "lockstep/observe/step_timer.h"
#include "lockstep/observe/step_trace.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/device_step_state.h"
#include "lockstep/train/gradient_accumulator.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/train/rank_context.h"

namespace lockstep {

// The number of steps before one is captured, because libraries finish their initialization in the first steps.
inline constexpr int64_t kStepsBeforeCapture = 2;

// Every rank has one, owned by the trainer and used by the thread that runs the step. On a GPU it only enqueues work.
// The objects on which it is built must outlive it.
class StepWork {
 public:
  StepWork(const RankContext& rank, Checkpointer& checkpointer, DeviceStepState& device_state, StepTimer& timer,
           StepTrace& trace);
  StepWork(const StepWork&) = delete;
  StepWork& operator=(const StepWork&) = delete;

  // Enters a part of the step in the timer and in the trace.
  void enter(StepPart part);

  // Enqueues the work of one micro-batch of a step; with the last of train.accumulate micro-batches, also the
  // all-reduce and the update. If the backend supports it, the work is captured and launched as a whole.
  void enqueue(int64_t step, int64_t micro, const ExternalInputs& batch);

  // Collective. On rank 0, warns once if the steps are not captured because the capture failed on a rank.
  void warn_if_not_captured();

  std::span<const Bucket> buckets() const { return reducer_.buckets(); }
  // Returns when each bucket of the last step was complete, in monotonic_seconds().
  std::span<const double> ready_times() const { return reducer_.ready_times(); }

 private:
  std::unique_ptr<CapturedWork> capture(int64_t micro);
  std::unique_ptr<CapturedWork> try_capture(int64_t micro);
  void compute(int64_t micro);
  void forward();
  void backward(int64_t micro);
  void update();
  RankSum sum_over_ranks();

  const RankContext rank_;
  Checkpointer& checkpointer_;
  DeviceStepState& device_state_;
  StepTimer& timer_;
  StepTrace& trace_;
  Updater updater_;
  GradientReducer reducer_;
  GradientAccumulator accumulator_;
  std::array<std::unique_ptr<CapturedWork>, 3>
      captured_;                 // compute() of the first, the middle, and the last micro-batches
  std::array<bool, 3> tried_{};  // which of them a capture was tried for
  bool may_capture_;             // the same on all ranks
  std::string not_captured_;     // why a capture failed on this rank
  bool capture_reported_ = false;
  int64_t computed_ = 0;  // number of micro-batches
  int64_t step_ = 0;      // the step that is being enqueued
  Arenas arenas_;
  const RankSum sum_over_ranks_ = sum_over_ranks();
};

}  // namespace lockstep
