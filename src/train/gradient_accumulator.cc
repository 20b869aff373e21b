#include "lockstep/train/gradient_accumulator.h"

#include <array>

#include "lockstep/backend/update.h"

namespace lockstep {
namespace {

void run(const Kernel& kernel, Stream& stream, void* values, void* sums) {
  const std::array<void*, 1> in{values}, out{sums};
  kernel.run({stream, in, out});
}

}  // namespace

GradientAccumulator::GradientAccumulator(const Backend& backend, const ModelState& state, int64_t micro_batches,
                                         std::span<const Bucket> buckets)
    : backend_(backend), state_(state), buckets_(buckets.begin(), buckets.end()) {
  if (micro_batches == 1) return;
  sums_ = backend.allocate(state.gradients.bytes());
  into_sums_ = backend.compile(UpdateOp{DType::f32, AddToSums{state.gradient_elements()}});
  for (const Bucket& bucket : buckets_) {
    into_arena_.push_back(backend.compile(UpdateOp{DType::f32, AddToSums{bucket.count}}));
  }
}

void GradientAccumulator::add(Stream& stream, int64_t micro) {
  if (micro == 0) {
    backend_.copy(stream, sums_.data(), state_.gradients.data(), sums_.bytes());
  } else {
    run(*into_sums_, stream, state_.gradients.data(), sums_.data());
  }
}

void GradientAccumulator::complete(Stream& stream, size_t bucket) const {
  const int64_t offset = buckets_[bucket].offset;
  run(*into_arena_[bucket], stream, sums_.as<float>() + offset, state_.gradients.as<float>() + offset);
}

}  // namespace lockstep
