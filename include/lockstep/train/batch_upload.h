// Copies batches from the loader's memory to the memory from which kernels read them.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "lockstep/backend/backend.h"
#include "lockstep/data/loader.h"
#include "lockstep/graph/executable.h"
#include "lockstep/train/rank_context.h"

namespace lockstep {

// On a GPU, the copy to a staging buffer runs on a separate stream while the previous step computes. A second copy, in
// the order of the compute stream, moves the batch to a fixed address, so that a captured step can be replayed. On a
// CPU, kernels read the loader's memory directly.
//
// Owned by the object that runs the steps; the backend, the loader and the compute stream must outlive it. Not
// thread-safe.
class BatchUpload {
 public:
  // For the batches of a loader with these options.
  BatchUpload(const Backend& backend, const LoaderOptions& batches, BatchUse use = BatchUse::one_step);
  // Waits for copies in flight, so that the loader's memory may be freed afterwards.
  ~BatchUpload();
  BatchUpload(const BatchUpload&) = delete;
  BatchUpload& operator=(const BatchUpload&) = delete;

  // Returns the loader's next batch, after the previous one has been copied from the loader's memory. With every_step,
  // the loader is asked once, and must remain.
  Batch next(Loader& loader);

  // Enqueues the copies that make the batch readable for later work on `compute`. Returns the addresses for that work;
  // the caller adds the inputs `step` and `loss_scale`.
  ExternalInputs place(Stream& compute, const Batch& batch);

 private:
  void upload(Stream& compute, const Batch& batch);

  // The members of a batch that kernels read, and the device memory of each.
  enum Member : size_t { kImages, kLabels, kWeights, kIds, kValues, kChanges, kPixels, kMembers };
  struct Place {
    size_t bytes = 0;  // 0 if batches do not have this member
    Buffer memory;
  };

  const Backend& backend_;
  const BatchUse use_;
  std::optional<Batch> kept_;         // every_step: the first batch
  bool is_placed_ = false;            // every_step: it is where kernels read it
  std::unique_ptr<Stream> transfer_;  // null if kernels read host memory
  std::unique_ptr<Event> staged_;     // the batch is in the staging buffer
  std::unique_ptr<Event> placed_;     // the batch has been copied out of it
  Buffer staging_;                    // for all members
  std::array<Place, kMembers> places_;
};

// Returns an allocator of pinned memory for a loader, from which the backend copies asynchronously. The backend must
// outlive the loader.
HostAllocator pinned_memory(const Backend& backend);

}  // namespace lockstep
