#include "lockstep/dist/gradient_reducer.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

GradientReducer::GradientReducer(Communicator& communicator, GradientArena arena, std::vector<Bucket> buckets,
                                 BeforeSum before_sum)
    : communicator_(communicator), arena_(arena), buckets_(std::move(buckets)), before_sum_(std::move(before_sum)) {
  const size_t elements = std::visit([](auto values) { return values.size(); }, arena_);
  int64_t end = 0;
  for (const Bucket& bucket : buckets_) {
    require(bucket.offset == end && bucket.count > 0, "bucket at element {} does not follow the one that ends at {}",
            bucket.offset, end);
    end += bucket.count;
  }
  require(static_cast<size_t>(end) == elements, "buckets cover {} of {} gradients", end, elements);
}

void GradientReducer::begin_step(int64_t step) {
  require(!open_, "step {} begins before step {} was reduced", step, step_);
  step_ = step;
  started_ = 0;
  open_ = true;
}

void GradientReducer::bucket_ready(Stream& stream, size_t bucket) {
  require(open_ && bucket == started_ && bucket < buckets_.size(), "step {}: bucket {} is ready, but {} is next", step_,
          bucket, started_);
  ++started_;
  if (before_sum_) before_sum_(stream, bucket);
  const std::string label = fmt::format("step {} bucket {} of {}", step_, bucket + 1, buckets_.size());
  const size_t offset = static_cast<size_t>(buckets_[bucket].offset);
  const size_t count = static_cast<size_t>(buckets_[bucket].count);
  std::visit([&](auto values) { communicator_.sum(stream, values.subspan(offset, count), label); }, arena_);
}

void GradientReducer::ready_up_to(Stream& stream, int64_t position) {
  while (started_ + 1 < buckets_.size() && buckets_[started_].ready <= position) bucket_ready(stream, started_);
}

double GradientReducer::join(Stream& stream) {
  require(open_ && started_ == buckets_.size(), "step {}: {} of {} buckets were started", step_, started_,
          buckets_.size());
  const double exposed = communicator_.join(stream);
  open_ = false;
  return exposed;
}

}  // namespace lockstep
