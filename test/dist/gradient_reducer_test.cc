#include "lockstep/dist/gradient_reducer.h"

#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/dist/rank_threads.h"
#include "test/dist/test_stream.h"

using namespace lockstep;
using lockstep::testing::IdleStream;
using lockstep::testing::run_ranks;

namespace {

const std::vector<Bucket> kBuckets = {{0, 100, 3}, {100, 50, 3}, {150, 70, 8}, {220, 30}};

// Records what it is asked for.
class Recorder final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void sum(Stream&, std::span<float> values, std::string_view label) override {
    ranges.emplace_back(values.data(), values.size());
    labels.emplace_back(label);
  }
  void sum(Stream&, std::span<double>, std::string_view) override { FAIL("no doubles were given"); }
  void broadcast(Stream&, std::span<std::byte>, int, std::string_view) override { FAIL("nothing to broadcast"); }
  double join(Stream&) override { return 0.25; }
  CommStatistics statistics() const override { return {}; }

  std::vector<std::pair<float*, size_t>> ranges;
  std::vector<std::string> labels;
};

}  // namespace

TEST_CASE("buckets start as soon as their position has run, the last one when told") {
  Recorder recorder;
  IdleStream stream;
  std::vector<float> arena(250);
  GradientReducer reducer(recorder, std::span(arena), kBuckets);
  for (int64_t step = 0; step < 2; ++step) {
    recorder.ranges.clear();
    reducer.begin_step(step);
    reducer.ready_up_to(stream, 2);
    CHECK(recorder.ranges.empty());
    reducer.ready_up_to(stream, 3);
    CHECK(recorder.ranges.size() == 2);
    reducer.ready_up_to(stream, 100);
    CHECK(recorder.ranges.size() == 3);
    reducer.last_ready(stream);
    REQUIRE(recorder.ranges.size() == 4);
    CHECK(recorder.ranges[1] == std::pair(arena.data() + 100, size_t{50}));
    CHECK(recorder.ranges[3] == std::pair(arena.data() + 220, size_t{30}));
    CHECK(reducer.join(stream) == 0.25);
  }
  CHECK(recorder.labels.back() == "step 1 bucket 4 of 4");
}

TEST_CASE("each bucket can be completed just before it is summed") {
  Recorder recorder;
  IdleStream stream;
  std::vector<float> arena(250);
  std::vector<std::pair<size_t, size_t>> calls;  // bucket, sums started before
  GradientReducer reducer(recorder, std::span(arena), kBuckets,
                          [&](Stream&, size_t bucket) { calls.emplace_back(bucket, recorder.ranges.size()); });
  reducer.begin_step(0);
  reducer.ready_up_to(stream, 100);
  reducer.last_ready(stream);
  CHECK(calls == std::vector<std::pair<size_t, size_t>>{{0, 0}, {1, 1}, {2, 2}, {3, 3}});
}

TEST_CASE("a bucket that is left out, repeated or out of order is a bug") {
  Recorder recorder;
  IdleStream stream;
  std::vector<float> arena(250);
  GradientReducer reducer(recorder, std::span(arena), kBuckets);
  CHECK_THROWS_WITH(reducer.bucket_ready(stream, 0), ContainsSubstring("bucket 0 is ready"));
  reducer.begin_step(5);
  CHECK_THROWS_WITH(reducer.begin_step(6), ContainsSubstring("step 6 begins before step 5"));
  CHECK_THROWS_WITH(reducer.bucket_ready(stream, 1), ContainsSubstring("step 5: bucket 1 is ready, but 0 is next"));
  reducer.bucket_ready(stream, 0);
  CHECK_THROWS_WITH(reducer.bucket_ready(stream, 0), ContainsSubstring("bucket 0 is ready, but 1 is next"));
  CHECK_THROWS_WITH(reducer.last_ready(stream), ContainsSubstring("bucket 3 is ready, but 1 is next"));
  CHECK_THROWS_WITH(reducer.join(stream), ContainsSubstring("1 of 4 buckets were started"));
}

TEST_CASE("buckets must cover the arena") {
  Recorder recorder;
  std::vector<float> arena(251);
  CHECK_THROWS_WITH(GradientReducer(recorder, std::span(arena), kBuckets), ContainsSubstring("cover 250 of 251"));
  CHECK_THROWS_WITH(GradientReducer(recorder, std::span(arena), std::vector<Bucket>{{0, 10, 1}, {11, 240}}),
                    ContainsSubstring("bucket at element 11"));
}

TEST_CASE("a reduced arena holds the sums of all ranks, in either element type") {
  const auto errors = run_ranks(3, 30, [](LocalCommunicator& communicator) {
    IdleStream stream;
    std::vector<double> arena(250);
    GradientReducer reducer(communicator, std::span(arena), kBuckets);
    for (int64_t step = 0; step < 3; ++step) {
      for (size_t i = 0; i < arena.size(); ++i) arena[i] = static_cast<double>(i) * (communicator.rank() + 1);
      reducer.begin_step(step);
      for (int64_t position = 0; position < 10; ++position) reducer.ready_up_to(stream, position);
      reducer.last_ready(stream);
      reducer.join(stream);
      for (size_t i = 0; i < arena.size(); ++i) require(arena[i] == 6.0 * static_cast<double>(i), "element {}", i);
    }
  });
  for (const auto& error : errors) CHECK_FALSE(error);
}
