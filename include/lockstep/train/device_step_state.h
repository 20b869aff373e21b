// The state of a step on the device: the control values from the host, the step header, the decision about the update,
// and the outcome for the host. It lets the host enqueue a step and continue without waiting for its result.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/step_header.h"
#include "lockstep/backend/update.h"
#include "lockstep/config/config.h"
#include "lockstep/train/compiled_model.h"
#include "lockstep/train/progress.h"

namespace lockstep {

// The host's input of one step.
struct StepInput {
  StepControl control;
  std::vector<std::array<int32_t, 4>> dropout;  // the `step` input of Dropout, by micro-batch
};

// Each step makes these calls in this order:
//
//   device.begin(stream, input);
//   for each micro-batch
//     device.begin_batch(stream, micro);
//     ... forward ...
//     device.pack_header(stream, arenas);  // before backward, which may reuse the memory of the losses
//     ... backward ...
//   ... reduction ...
//   device.decide(stream);
//   ... the update, with scalars() ...
//   device.end(stream);
//   while (auto outcome = device.next_outcome()) ...
//
// Owned by the trainer; the backend, the model and the streams that it uses must outlive it. Not thread-safe.
class DeviceStepState {
 public:
  // `ahead` is the number of steps that may be in flight when the host reads an outcome; with 0 it waits for every
  // step.
  DeviceStepState(const Backend& backend, const CompiledModel& model, const Config& config, int ahead);

  // Sets the state that the device keeps between steps. Must be called at the start, and when the run rolls back to an
  // older state. No step may be in flight.
  void restart(Stream& stream, int64_t updates, const LossScale& loss_scale = {});

  void begin(Stream& stream, const StepInput& input);
  void begin_batch(Stream& stream, size_t micro);
  void pack_header(Stream& stream, const Arenas& arenas);
  void decide(Stream& stream);
  void end(Stream& stream);

  // Returns the outcome of the oldest step in flight if more than `ahead` steps are in flight, or, with `drain`, if any
  // is. Blocks until that step has finished.
  std::optional<StepOutcome> next_outcome(bool drain = false);
  // Returns the number of steps whose outcome has not been returned.
  int64_t in_flight() const { return started_ - retired_; }

  const int32_t* dropout() const { return dropout_.as<int32_t>(); }              // for Arenas::external
  const float* loss_scale() const { return scalars_.as<float>() + kLossScale; }  // for Arenas::external
  void* scalars() const { return scalars_.data(); }                              // for Updater::apply

 private:
  // The pinned memory of a step in flight, which the device reads and writes while it runs the step.
  struct Slot {
    StepControl control;
    StepOutcome initial_outcome;  // the initial value of the device's outcome
    StepOutcome outcome;
  };
  using Dropout = std::array<int32_t, 4>;
  size_t slot_index(int64_t step) const { return step % done_.size(); }
  Slot& slot(int64_t step) const { return ring_.as<Slot>()[slot_index(step)]; }
  Dropout* dropout_of(int64_t step) const { return dropout_ring_.as<Dropout>() + slot_index(step) * micro_batches_; }
  void run(const Kernel& kernel, Stream& stream, std::span<void* const> inputs, std::span<void* const> outputs);

  const Backend& backend_;
  const CompiledModel& model_;
  const int ahead_;
  const size_t micro_batches_;
  std::unique_ptr<Kernel> header_, squares_, decide_, find_;
  Buffer control_, dropout_, squares_result_, scalars_, update_state_, outcome_, workspace_;
  Buffer ring_, dropout_ring_;                // ring buffers of Slot, and of the dropout inputs of each slot
  std::vector<std::unique_ptr<Event>> done_;  // by slot: the outcome has arrived
  int64_t started_ = 0, retired_ = 0;         // numbers of steps
};

}  // namespace lockstep
