#include "lockstep/comm/transport/bucket_plan.h"

#include <algorithm>
#include <bit>
#include <iterator>

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

void check_order(const ReadyMark& mark, const ReadyMark& last, int64_t total_elements) {
  require(mark.position >= last.position && mark.end >= last.end && mark.end <= total_elements,
          "gradients up to {} are ready after position {}, which follows {} after {}", mark.end, mark.position,
          last.end, last.position);
}

// The possible ends of buckets, in order; the first is the beginning of the arena.
struct PossibleEnd {
  int64_t element = 0;
  int64_t position = 0;
  double seconds = 0;     // when all before it is complete
  double wire_bytes = 0;  // of all before it
};

std::vector<PossibleEnd> possible_ends(std::span<const ReadyMark> marks, const TimedPlanOptions& options) {
  const auto bytes = [&](int64_t element) {
    const int64_t gradients = std::min(element, options.wire_elements);
    return static_cast<double>(gradients * options.wire_bytes + (element - gradients) * int64_t{sizeof(float)});
  };
  std::vector<PossibleEnd> ends{{}};
  ReadyMark last;
  for (const ReadyMark& mark : marks) {
    check_order(mark, last, options.total_elements);
    last = mark;
    if (mark.end == ends.back().element || mark.end == options.total_elements) continue;
    ends.push_back({mark.end, mark.position, mark.seconds, bytes(mark.end)});
  }
  ends.push_back({options.total_elements, Bucket::kMarkedByCaller, options.end_seconds, bytes(options.total_elements)});
  return ends;
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const ReadyMark> marks, const BucketPlanOptions& options) {
  require(options.total_elements > 0 && options.target_elements > 0, "buckets of {} elements for an arena of {}",
          options.target_elements, options.total_elements);
  std::vector<Bucket> buckets;
  int64_t begin = 0;
  ReadyMark last;
  for (const ReadyMark& mark : marks) {
    check_order(mark, last, options.total_elements);
    last = mark;
    if (mark.end - begin < options.target_elements || mark.end == options.total_elements) continue;
    append_pieces(buckets, {.offset = begin, .count = mark.end - begin, .ready = mark.position},
                  options.target_elements);
    begin = mark.end;
  }
  buckets.push_back({.offset = begin, .count = options.total_elements - begin});
  return buckets;
}

AllReduceCost assumed_nccl_cost(int ranks, int hosts, bool ring) {
  constexpr double kLaunchSeconds = 10e-6, kMessageSeconds = 5e-6, kLocalMessageSeconds = 1.5e-6;
  constexpr double kLinkBytes = 25e9 / 8, kLocalBytes = 100e9;  // a second, per GPU
  if (ranks == 1) return {.launch_seconds = kLaunchSeconds};
  const double local = (ranks + hosts - 1) / hosts;
  const double senders = hosts > 1 ? hosts : ranks;
  const double link = hosts > 1 ? kLinkBytes * local : kLocalBytes;
  AllReduceCost cost{.bytes_per_second = link * senders / (2 * (senders - 1)), .launch_seconds = kLaunchSeconds};
  if (ring || hosts == 1) {
    const double between = hosts > 1 ? hosts : 0;
    cost.latency_seconds =
        2.0 * (ranks - 1) / ranks * (between * kMessageSeconds + (ranks - between) * kLocalMessageSeconds);
  } else {
    const int levels = std::bit_width(static_cast<unsigned>(hosts - 1));  // the logarithm, rounded up
    cost.latency_seconds = 2 * (levels * kMessageSeconds + (local - 1) * kLocalMessageSeconds);
  }
  return cost;
}

// finish[j] is the earliest end of n all-reduces up to end j. Everything later depends on them only through this time.
std::vector<Bucket> plan_timed_buckets(std::span<const ReadyMark> marks, const TimedPlanOptions& options) {
  require(options.total_elements > 0, "buckets for an arena without elements");
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::vector<PossibleEnd> ends = possible_ends(marks, options);
  const auto& [latency, rate, launch] = options.cost;
  std::vector<double> finish(ends.size(), kNever);
  finish[0] = -kNever;
  std::vector<std::vector<size_t>> begins;  // by number of buckets and end
  double best = kNever;
  size_t best_count = 0;
  for (size_t n = 1; n < ends.size(); ++n) {
    const double delay = static_cast<double>(n - 1) * launch;
    if (ends.back().seconds + delay >= best) break;
    std::vector<double> next(ends.size(), kNever);
    std::vector<size_t>& begin = begins.emplace_back(ends.size(), 0);
    for (size_t j = n; j < ends.size(); ++j) {
      for (size_t i = j; i-- > n - 1;) {
        const double bytes = ends[j].wire_bytes - ends[i].wire_bytes;
        if (i + 1 < j && bytes > static_cast<double>(options.most_bytes)) break;
        double end = std::max(finish[i], ends[j].seconds + delay) + latency + bytes / rate;
        if (j + 1 == ends.size()) end += bytes / rate;
        if (end < next[j]) {
          next[j] = end;
          begin[j] = i;
        }
      }
    }
    finish = std::move(next);
    if (finish.back() < best) {
      best = finish.back();
      best_count = n;
    }
  }
  require(best_count > 0, "no buckets of at most {} bytes", options.most_bytes);
  std::vector<Bucket> buckets;
  size_t j = ends.size() - 1;
  for (size_t n = best_count; n > 0; --n) {
    const size_t i = begins[n - 1][j];
    buckets.push_back(
        {.offset = ends[i].element, .count = ends[j].element - ends[i].element, .ready = ends[j].position});
    j = i;
  }
  std::ranges::reverse(buckets);
  return buckets;
}

}  // namespace lockstep
