#include "lockstep/train/batch_upload.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {

BatchUpload::BatchUpload(const Backend& backend, const BatchShape& shape)
    : backend_(backend),
      image_bytes_(static_cast<size_t>(shape.samples * 3 * shape.image_size * shape.image_size) * sizeof(float)),
      label_bytes_(static_cast<size_t>(shape.samples) * sizeof(int32_t)),
      weight_bytes_(static_cast<size_t>(shape.samples) * sizeof(float)) {
  if (backend.host_addressable()) return;
  transfer_ = backend.make_stream();
  staged_ = backend.make_event();
  placed_ = backend.make_event();
  staging_ = backend.allocate(image_bytes_ + label_bytes_ + weight_bytes_);
  images_ = backend.allocate(image_bytes_);
  labels_ = backend.allocate(label_bytes_);
  weights_ = backend.allocate(weight_bytes_);
}

BatchUpload::~BatchUpload() {
  if (!transfer_) return;
  try {
    transfer_->wait();
  } catch (const std::exception& error) {
    log_warning("waiting for a batch on its way: {}", error.what());
  }
}

Batch BatchUpload::next(Loader& loader) const {
  if (transfer_) staged_->wait();
  return loader.next();
}

PlacedBatch BatchUpload::place(Stream& compute, const Batch& batch) {
  if (!transfer_) return {batch.images, batch.labels, batch.weights};
  auto* staging = staging_.as<std::byte>();
  auto* labels = staging + image_bytes_;
  auto* weights = labels + label_bytes_;
  transfer_->wait_for(*placed_);
  backend_.copy(*transfer_, staging, batch.images, image_bytes_);
  backend_.copy(*transfer_, labels, batch.labels, label_bytes_);
  backend_.copy(*transfer_, weights, batch.weights, weight_bytes_);
  transfer_->record(*staged_);
  compute.wait_for(*staged_);
  backend_.copy(compute, images_.data(), staging, image_bytes_);
  backend_.copy(compute, labels_.data(), labels, label_bytes_);
  backend_.copy(compute, weights_.data(), weights, weight_bytes_);
  compute.record(*placed_);
  return {images_.as<float>(), labels_.as<int32_t>(), weights_.as<float>()};
}

HostAllocator pinned_memory(const Backend& backend) {
  return [&backend](size_t bytes) {
    auto owner = std::make_shared<Buffer>(backend.allocate_pinned(bytes));
    auto* data = owner->as<std::byte>();
    return HostMemory(data, [owner = std::move(owner)](std::byte*) {});
  };
}

}  // namespace lockstep
