#include "lockstep/comm/transport/bucket_plan.h"

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
