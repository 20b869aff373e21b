// The state of a run in memory that the host can read and write, for any backend.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/model_state.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// Returns the arenas that a checkpoint contains.
std::vector<const Buffer*> saved_arenas(const ModelState& state);

// Parameters, statistics, optimizer slots and averages: the model's arenas if the host can address them, otherwise a
// copy in pinned memory. No stream may use the state of the model during a call.
class HostState {
 public:
  explicit HostState(const CompiledModel& model);

  void download() const;  // copies from the model
  void upload() const;    // copies to the model

  const ModelState& arenas() const { return copy_ ? *copy_ : model_.state(); }
  std::span<float> parameter(ParameterId id, Weights weights = Weights::raw) const;

 private:
  const CompiledModel& model_;
  std::unique_ptr<ModelState> copy_;
};

// A copy of the state at one point of the compute stream, for a checkpoint. A fast copy within the device comes first;
// the copy to the host then runs on a separate stream while training continues.
//
// Only for backends whose memory the host cannot address. Owned by the checkpointer; the model must outlive it.
class Snapshot {
 public:
  explicit Snapshot(const CompiledModel& model);
  // Waits for copies in flight.
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Enqueues the copy. The previous snapshot must not be in use any more.
  void take(Stream& compute);
  bool ready() const { return downloaded_->passed(); }
  void wait() const { downloaded_->wait(); }
  const ModelState& arenas() const { return host_; }  // valid once ready() is true

 private:
  const CompiledModel& model_;
  std::unique_ptr<Stream> transfer_;
  std::unique_ptr<Event> copied_, downloaded_;
  ModelState device_, host_;
};

}  // namespace lockstep
