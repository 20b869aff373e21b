// The state of a run where the host can read and write it, whatever the backend.
#pragma once

#include <memory>
#include <span>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/model_state.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// Parameters, statistics, optimizer slots and averages: the model's own arenas where the host can address them, else
// a copy of them in pinned memory. Nothing of the model's state may be in use by a stream during its calls.
class HostState {
 public:
  explicit HostState(const CompiledModel& model);

  void download() const;  // from the program
  void upload() const;    // to it

  const ModelState& arenas() const { return copy_ ? *copy_ : model_.state(); }
  std::span<float> parameter(ParameterId id, Weights weights = Weights::raw) const;

 private:
  const CompiledModel& model_;
  std::unique_ptr<ModelState> copy_;
};

// A copy of the state as it is at one place of the compute stream, for a checkpoint: within the device at once, then
// to the host on a stream of its own, while training goes on.
//
// Only for backends whose memory the host cannot address. Owned by the checkpointer; the model must outlive it.
class Snapshot {
 public:
  explicit Snapshot(const CompiledModel& model);
  // Waits for copies under way.
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Enqueues the copy. The one before must have been used.
  void take(Stream& compute);
  bool ready() const { return downloaded_->passed(); }
  void wait() const { downloaded_->wait(); }
  const ModelState& arenas() const { return host_; }  // once ready

 private:
  const CompiledModel& model_;
  std::unique_ptr<Stream> transfer_;
  std::unique_ptr<Event> copied_, downloaded_;
  ModelState device_, host_;
};

}  // namespace lockstep
