// Cutting the gradient arena into the ranges that are reduced together.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lockstep {

// After schedule position `position`, all gradients below element `end` of the arena are final. In a list of marks
// both never decrease.
struct ReadyMark {
  int64_t position = 0;
  int64_t end = 0;
};

// Elements [offset, offset + count) of the arena, all final after schedule position `ready`.
struct Bucket {
  static constexpr int64_t kWhenTold = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  int64_t count = 0;
  int64_t ready = kWhenTold;
  bool operator==(const Bucket&) const = default;
};

// The target for host memory, where small buckets cost little and shorten the wait for the last one.
inline constexpr int64_t kHostBucketBytes = int64_t{4} << 20;
// The target for device memory, where every operation costs a kernel launch or more.
inline constexpr int64_t kDeviceBucketBytes = int64_t{24} << 20;

struct BucketPlanOptions {
  int64_t total_elements = 0;   // of the arena, with what follows the gradients
  int64_t target_elements = 0;  // a bucket is closed once it holds so many
};

// Adjacent buckets that cover the arena. A range that becomes ready at once and holds several times the target is cut
// into pieces of one to two targets. The last bucket takes what is left: the last gradients and what follows them
// (batch-norm moments, the step's header); only the caller knows when that is complete (Bucket::kWhenTold).
std::vector<Bucket> plan_buckets(std::span<const ReadyMark> marks, const BucketPlanOptions& options);

}  // namespace lockstep
