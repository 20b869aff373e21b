// The way of a batch from the loader's memory to where the kernels read it.
#pragma once

#include <array>
#include <memory>

#include "lockstep/backend/backend.h"
#include "lockstep/data/loader.h"
#include "lockstep/graph/executable.h"

namespace lockstep {

struct BatchShape {
  int64_t samples = 1;
  int64_t image_size = 0;  // pixels; images are [N,3,S,S]; 0: there are none
  int64_t max_ids = 0;     // of a sparse sample; 0: samples are not sparse
};

// Of the batches of a loader with these options.
BatchShape batch_shape(const LoaderOptions& options);

// On a device the copy runs on a stream of its own while the step before computes: loader memory, then a staging area,
// then, in the order of the compute stream, one fixed place, so that a captured step can be replayed. On a CPU kernels
// read the loader's memory.
//
// Owned by whoever makes the steps; backend, loader and the compute stream must outlive it. One thread.
class BatchUpload {
 public:
  BatchUpload(const Backend& backend, const BatchShape& shape);
  // Waits for copies: the loader's memory may go afterwards.
  ~BatchUpload();
  BatchUpload(const BatchUpload&) = delete;
  BatchUpload& operator=(const BatchUpload&) = delete;

  // The loader's next batch, once the one before has left its memory.
  Batch next(Loader& loader) const;

  // Enqueues what makes it readable for later work on `compute`. Returns where that work finds it; the step's own
  // inputs, `step` and `loss_scale`, are for the caller to add.
  ExternalInputs place(Stream& compute, const Batch& batch);

 private:
  // The members of a batch that kernels read, and the fixed place of each.
  enum Member : size_t { kImages, kLabels, kWeights, kIds, kValues, kMembers };
  struct Place {
    size_t bytes = 0;  // 0: the batch has none
    Buffer memory;
  };

  const Backend& backend_;
  std::unique_ptr<Stream> transfer_;  // null: the host's memory is the backend's
  std::unique_ptr<Event> staged_;     // the batch is in the staging area
  std::unique_ptr<Event> placed_;     // and has left it
  Buffer staging_;                    // of all members
  std::array<Place, kMembers> places_;
};

// Memory for a loader from which the backend copies while the host goes on. The backend must outlive the loader.
HostAllocator pinned_memory(const Backend& backend);

}  // namespace lockstep
