// What frames each step on the device: the host's numbers going in, the step header, the decision about the update, and
// the outcome coming back; so that the host enqueues a step and goes on.
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

// What the host gives one step.
struct StepInput {
  StepControl control;
  std::vector<std::array<int32_t, 4>> dropout;  // Dropout's `step` input, by micro-batch
};

// In each step, in this order on the stream:
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
// Owned by the trainer; backend, program and the streams it was used with must outlive it. One thread.
class DeviceStepState {
 public:
  // `ahead`: how many steps the host may be ahead of the one whose outcome it reads; 0: it waits for every step.
  DeviceStepState(const Backend& backend, const CompiledModel& model, const Config& config, int ahead);

  // Sets what the device remembers from step to step: at the start, and when the run goes back to an older state. No
  // step may be in flight.
  void restart(Stream& stream, int64_t updates, const LossScale& loss_scale = {});

  void begin(Stream& stream, const StepInput& input);
  void begin_batch(Stream& stream, size_t micro);
  void pack_header(Stream& stream, const Arenas& arenas);
  void decide(Stream& stream);
  void end(Stream& stream);

  // The outcome of the oldest step in flight, when more than `ahead` are, or (drain) when any is. Blocks until it is
  // there.
  std::optional<StepOutcome> next_outcome(bool drain = false);

  const int32_t* dropout() const { return dropout_.as<int32_t>(); }              // for Arenas::external
  const float* loss_scale() const { return scalars_.as<float>() + kLossScale; }  // for Arenas::external
  void* scalars() const { return scalars_.data(); }                              // for Updater::apply

 private:
  // A step in flight, in pinned memory: the device reads and writes it when it gets there.
  struct Slot {
    StepControl control;
    StepOutcome fresh;  // what the device's outcome starts as
    StepOutcome outcome;
  };
  using Dropout = std::array<int32_t, 4>;
  size_t place(int64_t step) const { return static_cast<size_t>(step) % done_.size(); }
  Slot& slot(int64_t step) const { return ring_.as<Slot>()[place(step)]; }
  Dropout* dropout_of(int64_t step) const { return dropout_ring_.as<Dropout>() + place(step) * micro_batches_; }
  void run(const Kernel& kernel, Stream& stream, std::span<void* const> inputs, std::span<void* const> outputs);

  const Backend& backend_;
  const CompiledModel& model_;
  const int ahead_;
  const size_t micro_batches_;
  std::unique_ptr<Kernel> header_, squares_, decide_, find_;
  Buffer control_, dropout_, squares_result_, scalars_, update_state_, outcome_, workspace_;
  Buffer ring_, dropout_ring_;                // of Slots, and what belongs to each
  std::vector<std::unique_ptr<Event>> done_;  // the outcome of each slot is there
  int64_t begun_ = 0, retired_ = 0;           // steps
};

}  // namespace lockstep
