#include "lockstep/comm/transport/gradient_reducer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/backend/update.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/trace.h"

namespace lockstep {
namespace {

// Returns how many of a bucket's elements have an index below `elements`.
int64_t half_count(const Bucket& bucket, int64_t elements) {
  return std::clamp(elements - bucket.offset, int64_t{0}, bucket.count);
}

}  // namespace

GradientReducer::GradientReducer(Communicator& communicator, GradientArena arena, std::vector<Bucket> buckets,
                                 BeforeReduce before_reduce, const std::optional<WireFormat>& wire)
    : communicator_(communicator),
      arena_(arena),
      buckets_(std::move(buckets)),
      before_reduce_(std::move(before_reduce)),
      ready_times_(buckets_.size()) {
  const size_t elements = std::visit([](auto values) { return values.size(); }, arena_);
  int64_t end = 0;
  for (const Bucket& bucket : buckets_) {
    require(bucket.offset == end && bucket.count > 0, "bucket at element {} does not follow the one that ends at {}",
            bucket.offset, end);
    end += bucket.count;
  }
  require(static_cast<size_t>(end) == elements, "buckets cover {} of {} gradients", end, elements);
  if (!wire) return;
  require(std::holds_alternative<std::span<float>>(arena_), "only float32 gradients can be sent as 16-bit floats");
  const auto floats = std::get<std::span<float>>(arena_).first(static_cast<size_t>(wire->elements));
  if (communicator.rounds_between_hosts(floats)) {
    rounded_ = {.type = wire->type, .elements = wire->elements};
    return;
  }
  HalfCopy& half = half_copy_.emplace(HalfCopy{.type = wire->type, .elements = wire->elements});
  const size_t bytes = static_cast<size_t>(wire->elements) * sizeof(uint16_t);
  half.memory = communicator.shared_buffer(bytes);
  if (!half.memory.data()) half.memory = wire->backend.allocate(bytes);
  for (const Bucket& bucket : buckets_) {
    const int64_t count = half_count(bucket, wire->elements);
    half.to_half.push_back(count > 0 ? wire->backend.compile(UpdateOp{DType::f32, DowncastValues{count, wire->type}})
                                     : nullptr);
  }
  half.to_float = wire->backend.compile(UpdateOp{DType::f32, UpcastValues{wire->elements, wire->type}});
}

void GradientReducer::begin_step(int64_t step) {
  require(!open_, "step {} begins before step {} was reduced", step, step_);
  step_ = step;
  started_ = 0;
  open_ = true;
}

void GradientReducer::abandon_step() { open_ = false; }

void GradientReducer::bucket_ready(Stream& stream, size_t bucket) {
  require(open_ && bucket == started_ && bucket < buckets_.size(), "step {}: bucket {} is ready, but {} is next", step_,
          bucket, started_);
  ready_times_[started_++] = monotonic_seconds();
  const std::string name = fmt::format("bucket {}", bucket + 1);
  const TraceScope span(name.c_str());
  if (before_reduce_) before_reduce_(stream, bucket);
  const std::string label = fmt::format("step {} bucket {} of {}", step_, bucket + 1, buckets_.size());
  const int64_t done = half_copy_ ? all_reduce_half(stream, bucket, label) : all_reduce_rounded(stream, bucket, label);
  const auto offset = static_cast<size_t>(buckets_[bucket].offset + done);
  const auto count = static_cast<size_t>(buckets_[bucket].count - done);
  if (count == 0) return;
  std::visit([&](auto values) { communicator_.all_reduce(stream, values.subspan(offset, count), label); }, arena_);
}

// Starts the all-reduce of the bucket's gradients as 16-bit floats and returns their number.
int64_t GradientReducer::all_reduce_half(Stream& stream, size_t bucket, const std::string& label) {
  const int64_t count = half_count(buckets_[bucket], half_copy_->elements);
  if (count == 0) return 0;
  const int64_t offset = buckets_[bucket].offset;
  uint16_t* const values = half_copy_->memory.as<uint16_t>() + offset;
  const std::array<void*, 1> in{std::get<std::span<float>>(arena_).data() + offset}, out{values};
  half_copy_->to_half[bucket]->run({stream, in, out});
  communicator_.all_reduce(stream, HalfSpan{{values, static_cast<size_t>(count)}, half_copy_->type}, label);
  return count;
}

// The same if the communicator rounds.
int64_t GradientReducer::all_reduce_rounded(Stream& stream, size_t bucket, const std::string& label) {
  const int64_t count = half_count(buckets_[bucket], rounded_.elements);
  if (count == 0) return 0;
  const auto values = std::get<std::span<float>>(arena_).subspan(static_cast<size_t>(buckets_[bucket].offset),
                                                                 static_cast<size_t>(count));
  communicator_.all_reduce_rounded(stream, values, rounded_.type, label);
  return count;
}

void GradientReducer::ready_up_to(Stream& stream, int64_t position) {
  while (started_ + 1 < buckets_.size() && buckets_[started_].ready <= position) bucket_ready(stream, started_);
}

double GradientReducer::wait(Stream& stream) {
  require(open_ && started_ == buckets_.size(), "step {}: {} of {} buckets were started", step_, started_,
          buckets_.size());
  const double exposed = communicator_.wait(stream);
  open_ = false;
  if (half_copy_) {
    const std::array<void*, 1> in{half_copy_->memory.data()}, out{std::get<std::span<float>>(arena_).data()};
    half_copy_->to_float->run({stream, in, out});
  }
  return exposed;
}

}  // namespace lockstep
