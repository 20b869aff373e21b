// Splits the gradient arena into buckets, the ranges that are all-reduced together.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lockstep {

// After schedule position `position`, all gradients below element `end` of the arena are final. In a list of marks, no
// member ever decreases.
struct ReadyMark {
  int64_t position = 0;
  int64_t end = 0;
  double seconds = 0;  // predicted, from any origin; only plan_timed_buckets() reads it
};

// Elements [offset, offset + count) of the arena, all final after schedule position `ready`.
struct Bucket {
  static constexpr int64_t kMarkedByCaller = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  int64_t count = 0;
  int64_t ready = kMarkedByCaller;
  bool operator==(const Bucket&) const = default;
};

// The target size in host memory, where small buckets cost little and shorten the wait for the last one.
inline constexpr int64_t kHostBucketBytes = int64_t{4} << 20;
// The target size in device memory, where every operation costs at least a kernel launch.
inline constexpr int64_t kDeviceBucketBytes = int64_t{24} << 20;

struct BucketPlanOptions {
  int64_t total_elements = 0;   // size of the arena, including everything after the gradients
  int64_t target_elements = 0;  // a bucket is closed once it holds at least this many elements
};

// Returns adjacent buckets that cover the arena. A range that becomes ready at one position and holds several times the
// target is split into pieces of one to two targets. The last bucket holds the rest: the last gradients and what
// follows them (batch-norm moments, the header of the step). Only the caller knows when the rest is complete, so the
// bucket's `ready` is kMarkedByCaller.
std::vector<Bucket> plan_buckets(std::span<const ReadyMark> marks, const BucketPlanOptions& options);

// The modeled cost of an all-reduce: latency_seconds, and the time of its bytes.
struct AllReduceCost {
  double latency_seconds = 0;
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double launch_seconds = 0;  // by which it delays the computation
};

// Returns the cost that plans assume of NCCL. The links are assumed to be slow, 25 Gb/s per GPU between hosts: on
// faster ones, buckets are merely smaller than they need to be. `ring`: comm.algorithm leaves NCCL no trees.
AllReduceCost assumed_nccl_cost(int ranks, int hosts, bool ring);

struct TimedPlanOptions {
  int64_t total_elements = 0;
  int64_t wire_elements = 0;  // the first of the arena, which are sent with wire_bytes each, the others with four
  int64_t wire_bytes = 4;
  int64_t most_bytes = kDeviceBucketBytes;  // of a bucket as it is sent, unless a range between two marks has more
  double end_seconds = 0;                   // when the rest is complete, like ReadyMark::seconds
  AllReduceCost cost;
};

// Returns buckets for which the last all-reduce ends as early as possible if the all-reduces run one after the other.
// The bytes of the last bucket count twice, because only they are left to wait for on links that are faster than
// assumed. A range between two marks is not split. scripts/bench/scaling.py makes the same plan.
std::vector<Bucket> plan_timed_buckets(std::span<const ReadyMark> marks, const TimedPlanOptions& options);

}  // namespace lockstep
