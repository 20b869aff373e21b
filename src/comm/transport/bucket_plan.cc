#include "lockstep/comm/transport/bucket_plan.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kAlignment = 16;  // in elements, so that every piece starts on a cache line

// Appends `range` as pieces of at least `target` elements, if it holds that many.
void append_pieces(std::vector<Bucket>& buckets, Bucket range, int64_t target) {
  const int64_t pieces = std::max<int64_t>(1, range.count / target);
  const int64_t piece = (range.count / pieces + kAlignment - 1) / kAlignment * kAlignment;
  for (int64_t done = 0; done < range.count;) {
    const int64_t count = std::min(piece, range.count - done);
    buckets.push_back({.offset = range.offset + done, .count = count, .ready = range.ready});
    done += count;
  }
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const ReadyMark> marks, const BucketPlanOptions& options) {
  require(options.total_elements > 0 && options.target_elements > 0, "buckets of {} elements for an arena of {}",
          options.target_elements, options.total_elements);
  std::vector<Bucket> buckets;
  int64_t begin = 0;
  ReadyMark last;
  for (const ReadyMark& mark : marks) {
    require(mark.position >= last.position && mark.end >= last.end && mark.end <= options.total_elements,
            "gradients up to {} are ready after position {}, which follows {} after {}", mark.end, mark.position,
            last.end, last.position);
    last = mark;
    if (mark.end - begin < options.target_elements || mark.end == options.total_elements) continue;
    append_pieces(buckets, {.offset = begin, .count = mark.end - begin, .ready = mark.position},
                  options.target_elements);
    begin = mark.end;
  }
  buckets.push_back({.offset = begin, .count = options.total_elements - begin});
  return buckets;
}

}  // namespace lockstep
