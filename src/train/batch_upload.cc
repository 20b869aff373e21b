#include "lockstep/train/batch_upload.h"

#include <new>

#include "lockstep/backend/out_of_memory.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {

BatchUpload::BatchUpload(const Backend& backend, const LoaderOptions& batches, BatchUse use)
    : backend_(backend), use_(use) {
  if (backend.host_addressable()) return;
  transfer_ = backend.make_stream();
  staged_ = backend.make_event();
  placed_ = backend.make_event();
  const auto bytes = [](int64_t elements) { return elements * sizeof(float); };
  static_assert(sizeof(int32_t) == sizeof(float));
  const int64_t elements = batches.batch_size * 3 * batches.image_size * batches.image_size;
  places_[kImages].bytes = batches.pixels ? 0 : bytes(elements);
  places_[kPixels].bytes = batches.pixels ? elements : 0;
  places_[kChanges].bytes = batches.pixels ? bytes(batches.batch_size * kImageChanges) : 0;
  places_[kLabels].bytes = places_[kWeights].bytes = bytes(batches.batch_size);
  places_[kIds].bytes = places_[kValues].bytes = bytes(batches.batch_size * batches.max_ids);
  size_t all = 0;
  for (Place& place : places_) {
    place.memory = backend.allocate(place.bytes);
    all += place.bytes;
  }
  staging_ = backend.allocate(all);
}

BatchUpload::~BatchUpload() {
  if (!transfer_) return;
  try {
    transfer_->wait();
  } catch (const std::exception& error) {
    log_warning("waiting for a batch on its way: {}", error.what());
  }
}

Batch BatchUpload::next(Loader& loader) {
  if (kept_) return *kept_;
  if (transfer_) staged_->wait();
  const Batch batch = loader.next();
  if (use_ == BatchUse::every_step) kept_ = batch;
  return batch;
}

ExternalInputs BatchUpload::place(Stream& compute, const Batch& batch) {
  if (!transfer_) {
    return {.images = batch.images,
            .labels = batch.labels,
            .weights = batch.weights,
            .ids = batch.ids,
            .values = batch.values,
            .pixels = batch.pixels,
            .changes = batch.changes};
  }
  if (!is_placed_) upload(compute, batch);
  is_placed_ = use_ == BatchUse::every_step;
  return {.images = places_[kImages].memory.data(),
          .labels = places_[kLabels].memory.data(),
          .weights = places_[kWeights].memory.data(),
          .ids = places_[kIds].memory.data(),
          .values = places_[kValues].memory.data(),
          .pixels = places_[kPixels].memory.data(),
          .changes = places_[kChanges].memory.data()};
}

void BatchUpload::upload(Stream& compute, const Batch& batch) {
  const std::array<const void*, kMembers> members{batch.images, batch.labels,  batch.weights, batch.ids,
                                                  batch.values, batch.changes, batch.pixels};
  transfer_->wait_for(*placed_);
  auto* staging = staging_.as<std::byte>();
  for (size_t i = 0; i < kMembers; ++i) {
    require((members[i] != nullptr) == (places_[i].bytes > 0), "a batch of another kind than the upload was made for");
    backend_.copy(*transfer_, staging, members[i], places_[i].bytes);
    staging += places_[i].bytes;
  }
  transfer_->record(*staged_);
  compute.wait_for(*staged_);
  staging = staging_.as<std::byte>();
  for (const Place& place : places_) {
    backend_.copy(compute, place.memory.data(), staging, place.bytes);
    staging += place.bytes;
  }
  compute.record(*placed_);
}

HostAllocator pinned_memory(const Backend& backend) {
  return [&backend](size_t bytes) {
    auto owner = std::make_shared<Buffer>();
    try {
      *owner = backend.allocate_pinned(bytes);
    } catch (const OutOfMemory&) {
      throw std::bad_alloc();  // the loader catches it and names the sizes of its batches
    }
    auto* data = owner->as<std::byte>();
    return HostMemory(data, [owner = std::move(owner)](std::byte*) {});
  };
}

}  // namespace lockstep
