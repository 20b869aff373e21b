#include "lockstep/comm/transport/bucket_plan.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

// Buckets lie side by side, cover the arena, and none is ready before its gradients are.
void check_laws(const std::vector<ReadyMark>& marks, const BucketPlanOptions& options) {
  const std::vector<Bucket> buckets = plan_buckets(marks, options);
  int64_t end = 0;
  int64_t ready = 0;
  for (const Bucket& bucket : buckets) {
    CHECK(bucket.offset == end);
    CHECK(bucket.count > 0);
    CHECK(bucket.ready >= ready);
    end += bucket.count;
    ready = bucket.ready;
    if (bucket.ready == Bucket::kMarkedByCaller) continue;
    CHECK(bucket.count < 3 * options.target_elements);
    int64_t final_end = 0;
    for (const ReadyMark& mark : marks) {
      if (mark.position <= bucket.ready) final_end = mark.end;
    }
    CHECK(end <= final_end);
  }
  CHECK(end == options.total_elements);
  CHECK(buckets.back().ready == Bucket::kMarkedByCaller);
}

}  // namespace

TEST_CASE("a bucket closes at the first mark that reaches the target, and the last takes the rest") {
  const std::vector<ReadyMark> marks = {{5, 60}, {7, 110}, {9, 150}, {12, 215}, {20, 300}};
  const std::vector<Bucket> expected = {{0, 110, 7}, {110, 105, 12}, {215, 105, Bucket::kMarkedByCaller}};
  CHECK(plan_buckets(marks, {.total_elements = 320, .target_elements = 100}) == expected);
}

TEST_CASE("without marks, or with a target above the total, there is one bucket") {
  const std::vector<Bucket> whole = {{0, 320, Bucket::kMarkedByCaller}};
  CHECK(plan_buckets({}, {.total_elements = 320, .target_elements = 100}) == whole);
  const std::vector<ReadyMark> marks = {{5, 100}, {7, 300}};
  CHECK(plan_buckets(marks, {.total_elements = 320, .target_elements = 1000}) == whole);
}

TEST_CASE("the last bucket is never empty, even when the last mark ends the arena") {
  const std::vector<ReadyMark> marks = {{5, 100}, {7, 200}};
  const std::vector<Bucket> expected = {{0, 100, 5}, {100, 100, Bucket::kMarkedByCaller}};
  CHECK(plan_buckets(marks, {.total_elements = 200, .target_elements = 100}) == expected);
}

TEST_CASE("a large range is cut into pieces that are ready together") {
  const std::vector<ReadyMark> marks = {{3, 1600}, {8, 1650}};
  const std::vector<Bucket> buckets = plan_buckets(marks, {.total_elements = 1700, .target_elements = 400});
  REQUIRE(buckets.size() == 5);
  for (size_t i = 0; i < 4; ++i) CHECK(buckets[i] == Bucket{static_cast<int64_t>(400 * i), 400, 3});
  CHECK(buckets[4] == Bucket{1600, 100, Bucket::kMarkedByCaller});
}

TEST_CASE("random marks give adjacent buckets that are never early") {
  RandomStream random(random_key(42));
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<ReadyMark> marks;
    ReadyMark mark;
    for (uint64_t n = random.below(30); n > 0; --n) {
      mark.position += static_cast<int64_t>(random.below(4));
      mark.end += static_cast<int64_t>(random.below(5000));
      marks.push_back(mark);
    }
    check_laws(marks, {.total_elements = mark.end + 1 + static_cast<int64_t>(random.below(100)),
                       .target_elements = 32 + static_cast<int64_t>(random.below(6000))});
  }
}

TEST_CASE("marks that go back are a bug") {
  const std::vector<ReadyMark> back = {{5, 100}, {4, 200}};
  CHECK_THROWS_AS(plan_buckets(back, {.total_elements = 200, .target_elements = 10}), Error);
  const std::vector<ReadyMark> beyond = {{5, 300}};
  CHECK_THROWS_AS(plan_buckets(beyond, {.total_elements = 200, .target_elements = 10}), Error);
}

namespace {

// Buckets lie side by side, cover the arena, and end at marks; only the last is marked by the caller.
void check_timed_laws(std::span<const ReadyMark> marks, const TimedPlanOptions& options,
                      std::span<const Bucket> buckets) {
  int64_t end = 0;
  for (const Bucket& bucket : buckets) {
    CHECK(bucket.offset == end);
    CHECK(bucket.count > 0);
    end += bucket.count;
    if (bucket.ready == Bucket::kMarkedByCaller) continue;
    CHECK(std::ranges::any_of(marks,
                              [&](const ReadyMark& mark) { return mark.position == bucket.ready && mark.end == end; }));
  }
  CHECK(end == options.total_elements);
  CHECK(std::ranges::count(buckets, Bucket::kMarkedByCaller, &Bucket::ready) == 1);
  CHECK(buckets.back().ready == Bucket::kMarkedByCaller);
}

double wire_bytes(const Bucket& bucket, const TimedPlanOptions& options) {
  const int64_t gradients = std::clamp(options.wire_elements - bucket.offset, int64_t{0}, bucket.count);
  return static_cast<double>(gradients * options.wire_bytes + (bucket.count - gradients) * 4);
}

// When the last all-reduce of these buckets ends, with its bytes once more: what a plan is to minimize.
double end_of(std::span<const Bucket> buckets, std::span<const ReadyMark> marks, const TimedPlanOptions& options) {
  double end = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    double ready = options.end_seconds;
    if (i + 1 < buckets.size()) ready = std::ranges::find(marks, buckets[i].ready, &ReadyMark::position)->seconds;
    end = std::max(end, ready + static_cast<double>(i) * options.cost.launch_seconds) + options.cost.latency_seconds +
          wire_bytes(buckets[i], options) / options.cost.bytes_per_second;
  }
  return end + wire_bytes(buckets.back(), options) / options.cost.bytes_per_second;
}

// All ways to end buckets at marks that have different positions and ends.
double best_end(std::span<const ReadyMark> marks, const TimedPlanOptions& options) {
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t chosen = 0; chosen < (1U << marks.size()); ++chosen) {
    std::vector<Bucket> buckets;
    int64_t begin = 0;
    for (size_t i = 0; i < marks.size(); ++i) {
      if ((chosen >> i & 1) == 0) continue;
      buckets.push_back({begin, marks[i].end - begin, marks[i].position});
      begin = marks[i].end;
    }
    buckets.push_back({begin, options.total_elements - begin, Bucket::kMarkedByCaller});
    best = std::min(best, end_of(buckets, marks, options));
  }
  return best;
}

}  // namespace

TEST_CASE("where all-reduces cost nothing but their launch there is one bucket") {
  const std::vector<ReadyMark> marks = {{5, 100, 1e-3}, {7, 200, 2e-3}, {9, 300, 3e-3}};
  const TimedPlanOptions options{.total_elements = 320, .end_seconds = 4e-3, .cost = assumed_nccl_cost(1, 1, false)};
  CHECK(plan_timed_buckets(marks, options) == std::vector<Bucket>{{0, 320, Bucket::kMarkedByCaller}});
}

TEST_CASE("the last bucket is as small as the latency of another all-reduce is worth") {
  // 1,000 bytes a millisecond. The gradients of the second mark are complete 5 ms before the end.
  const std::vector<ReadyMark> marks = {{5, 1000, 2e-3}, {7, 2000, 5e-3}, {9, 2100, 9.9e-3}};
  TimedPlanOptions options{.total_elements = 2200, .wire_elements = 2200, .end_seconds = 10e-3};
  options.cost = {.latency_seconds = 3e-4, .bytes_per_second = 4e6};
  const auto ends_at = [&](const std::vector<Bucket>& buckets) { return end_of(buckets, marks, options); };
  CHECK(ends_at(plan_timed_buckets(marks, options)) == Approx(10e-3 + 3e-4 + 2 * 200 * 4 / 4e6));
  // With such a latency, two all-reduces after the end take longer than one.
  options.cost.latency_seconds = 20e-3;
  CHECK(plan_timed_buckets(marks, options).size() == 1);
}

TEST_CASE("in 16 bits the gradients have half the bytes, and what follows them has all") {
  const std::vector<ReadyMark> marks = {{5, 1000, 1e-3}, {7, 2000, 2e-3}};
  TimedPlanOptions options{.total_elements = 2100, .wire_elements = 2000, .wire_bytes = 2, .most_bytes = 2000};
  options.end_seconds = 3e-3;
  options.cost = {.bytes_per_second = 1e12, .launch_seconds = 1e-3};
  CHECK(plan_timed_buckets(marks, options).size() == 3);  // 2,000, 2,000 and 400 bytes
  options.most_bytes = 2400;
  CHECK(plan_timed_buckets(marks, options) == std::vector<Bucket>{{0, 1000, 5}, {1000, 1100, Bucket::kMarkedByCaller}});
}

TEST_CASE("no way to divide random gradients ends earlier than the plan") {
  RandomStream random(random_key(7));
  for (int repeat = 0; repeat < 300; ++repeat) {
    std::vector<ReadyMark> marks;
    ReadyMark mark;
    for (uint64_t n = random.below(9); n > 0; --n) {
      mark.position += 1 + static_cast<int64_t>(random.below(4));
      mark.end += 1 + static_cast<int64_t>(random.below(5000));
      mark.seconds += 1e-6 * static_cast<double>(random.below(2000));
      marks.push_back(mark);
    }
    TimedPlanOptions options{.total_elements = mark.end + 1 + static_cast<int64_t>(random.below(100))};
    options.wire_elements = mark.end;
    options.wire_bytes = random.below(2) == 0 ? 2 : 4;
    options.end_seconds = mark.seconds + 1e-6 * static_cast<double>(random.below(500));
    options.cost.latency_seconds = 1e-6 * static_cast<double>(random.below(300));
    options.cost.bytes_per_second = 1e6 * static_cast<double>(1 + random.below(100));
    options.cost.launch_seconds = 1e-6 * static_cast<double>(random.below(100));
    const std::vector<Bucket> buckets = plan_timed_buckets(marks, options);
    check_timed_laws(marks, options, buckets);
    CHECK(end_of(buckets, marks, options) == Approx(best_end(marks, options)));
  }
}

TEST_CASE("plans are those of the cases that scripts/bench/scaling.py is tested with") {
  std::ifstream file(LOCKSTEP_BUCKET_PLANS);
  std::vector<ReadyMark> marks;
  TimedPlanOptions options;
  int plans = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "case") {
      double latency = 0, rate = 0, launch = 0;
      words >> word >> latency >> rate >> launch >> options.most_bytes >> options.wire_bytes >> options.wire_elements;
      options.cost = {latency * 1e-6, rate * 1e9, launch * 1e-6};
    } else if (word == "marks") {
      marks.clear();
      for (std::string mark; words >> mark;) {
        const size_t colon = mark.find(':');
        const auto position = static_cast<int64_t>(marks.size());
        marks.push_back({position, std::stoll(mark), 1e-6 * std::stod(mark.substr(colon + 1))});
      }
      options.total_elements = marks.back().end;
      options.end_seconds = marks.back().seconds;
      marks.pop_back();
    } else if (word == "plan") {
      ++plans;
      std::vector<int64_t> expected, ends;
      for (int64_t end = 0; words >> end;) expected.push_back(end);
      for (const Bucket& bucket : plan_timed_buckets(marks, options)) ends.push_back(bucket.offset + bucket.count);
      CHECK(ends == expected);
    } else if (word == "cost") {
      int ranks = 0, hosts = 0;
      double latency = 0, megabyte = 0;
      words >> ranks >> hosts >> word >> latency >> megabyte;
      const AllReduceCost cost = assumed_nccl_cost(ranks, hosts, word == "ring");
      CHECK(cost.latency_seconds == Approx(latency * 1e-6));
      CHECK(1e6 / cost.bytes_per_second == Approx(megabyte * 1e-6));
    }
  }
  CHECK(plans > 0);
}
