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

// How many of a bucket's elements are below `elements`.
int64_t narrow_part(const Bucket& bucket, int64_t elements) {
  return std::clamp(elements - bucket.offset, int64_t{0}, bucket.count);
}

}  // namespace

GradientReducer::GradientReducer(Communicator& communicator, GradientArena arena, std::vector<Bucket> buckets,
                                 BeforeSum before_sum, const std::optional<WireFormat>& wire)
    : communicator_(communicator),
      arena_(arena),
      buckets_(std::move(buckets)),
      before_sum_(std::move(before_sum)),
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
  require(std::holds_alternative<std::span<float>>(arena_), "only float32 gradients are narrowed");
  Narrow& narrow = narrow_.emplace(Narrow{.type = wire->type, .elements = wire->elements});
  const size_t bytes = static_cast<size_t>(wire->elements) * sizeof(uint16_t);
  narrow.memory = communicator.shared_buffer(bytes);
  if (!narrow.memory.data()) narrow.memory = wire->backend.allocate(bytes);
  for (const Bucket& bucket : buckets_) {
    const int64_t count = narrow_part(bucket, wire->elements);
    narrow.narrow.push_back(count > 0 ? wire->backend.compile(UpdateOp{DType::f32, NarrowValues{count, wire->type}})
                                      : nullptr);
  }
  narrow.widen = wire->backend.compile(UpdateOp{DType::f32, WidenValues{wire->elements, wire->type}});
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
  if (before_sum_) before_sum_(stream, bucket);
  const std::string label = fmt::format("step {} bucket {} of {}", step_, bucket + 1, buckets_.size());
  const int64_t done = narrow_ ? sum_narrow(stream, bucket, label) : 0;
  const auto offset = static_cast<size_t>(buckets_[bucket].offset + done);
  const auto count = static_cast<size_t>(buckets_[bucket].count - done);
  if (count == 0) return;
  std::visit([&](auto values) { communicator_.all_reduce(stream, values.subspan(offset, count), label); }, arena_);
}

// Sums the bucket's gradients and returns how many they are.
int64_t GradientReducer::sum_narrow(Stream& stream, size_t bucket, const std::string& label) {
  const int64_t count = narrow_part(buckets_[bucket], narrow_->elements);
  if (count == 0) return 0;
  const int64_t offset = buckets_[bucket].offset;
  uint16_t* const values = narrow_->memory.as<uint16_t>() + offset;
  const std::array<void*, 1> in{std::get<std::span<float>>(arena_).data() + offset}, out{values};
  narrow_->narrow[bucket]->run({stream, in, out});
  communicator_.all_reduce(stream, HalfSpan{{values, static_cast<size_t>(count)}, narrow_->type}, label);
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
  if (narrow_) {
    const std::array<void*, 1> in{narrow_->memory.data()}, out{std::get<std::span<float>>(arena_).data()};
    narrow_->widen->run({stream, in, out});
  }
  return exposed;
}

}  // namespace lockstep
