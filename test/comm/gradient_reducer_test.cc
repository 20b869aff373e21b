#include "lockstep/comm/transport/gradient_reducer.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/tensor/half.h"
#include "test/catch.h"
#include "test/comm/rank_threads.h"
#include "test/comm/test_stream.h"

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
  void all_reduce(Stream&, std::span<float> values, std::string_view label) override {
    ranges.emplace_back(values.data(), values.size());
    labels.emplace_back(label);
  }
  void all_reduce(Stream&, std::span<double>, std::string_view) override { FAIL("no doubles were given"); }
  void all_reduce(Stream&, HalfSpan half, std::string_view label) override {
    halves.emplace_back(half.values.data(), half.values.size());
    labels.emplace_back(label);
  }
  void broadcast(Stream&, std::span<std::byte>, int, std::string_view) override { FAIL("nothing to broadcast"); }
  double wait(Stream&) override { return 0.25; }
  CommStatistics statistics() const override { return {}; }

  std::vector<std::pair<float*, size_t>> ranges;
  std::vector<std::pair<uint16_t*, size_t>> halves;
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
    CHECK(reducer.wait(stream) == 0.25);
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
  CHECK_THROWS_WITH(reducer.wait(stream), ContainsSubstring("1 of 4 buckets were started"));
}

TEST_CASE("buckets must cover the arena") {
  Recorder recorder;
  std::vector<float> arena(251);
  CHECK_THROWS_WITH(GradientReducer(recorder, std::span(arena), kBuckets), ContainsSubstring("cover 250 of 251"));
  CHECK_THROWS_WITH(GradientReducer(recorder, std::span(arena), std::vector<Bucket>{{0, 10, 1}, {11, 240}}),
                    ContainsSubstring("bucket at element 11"));
}

TEST_CASE("gradients are narrowed bucket by bucket, and what lies behind them is summed as it is") {
  Recorder recorder;
  const auto backend = make_backend("reference", {.threads = 1});
  const auto stream = backend->make_stream();
  std::vector<float> arena(250, 1 + 0x1p-9F);
  GradientReducer reducer(recorder, std::span(arena), kBuckets, {},
                          WireFormat{.backend = *backend, .type = DType::bf16, .elements = 230});
  reducer.begin_step(1);
  reducer.ready_up_to(*stream, 100);
  CHECK(recorder.halves.size() == 3);
  CHECK(recorder.ranges.empty());
  reducer.last_ready(*stream);
  REQUIRE(recorder.halves.size() == 4);
  CHECK(recorder.halves[1].second == 50);
  CHECK(recorder.halves[3] == std::pair(recorder.halves[0].first + 220, size_t{10}));
  CHECK(recorder.ranges == std::vector{std::pair(arena.data() + 230, size_t{20})});
  for (int i = 0; i < 230; ++i) CHECK(recorder.halves[0].first[i] == to_bf16(1));
  recorder.halves[0].first[229] = to_bf16(-8);  // the sum
  reducer.wait(*stream);
  CHECK(arena[0] == 1);
  CHECK(arena[229] == -8);
  CHECK(arena[230] == 1 + 0x1p-9F);
}

TEST_CASE("all ranks get the same sums of narrow gradients, near those of float32") {
  constexpr int kRanks = 3;
  std::vector<std::vector<float>> results(kRanks);
  const auto errors = run_ranks(kRanks, 30, [&](LocalCommunicator& communicator) {
    const auto backend = make_backend("cpu", {.threads = 1});
    const auto stream = backend->make_stream();
    std::vector<float> arena(250);
    GradientReducer reducer(communicator, std::span(arena), kBuckets, {},
                            WireFormat{.backend = *backend, .type = DType::f16, .elements = 240});
    for (int64_t step = 0; step < 2; ++step) {
      for (size_t i = 0; i < arena.size(); ++i) {
        arena[i] = 0.1F * static_cast<float>(i + 1) * static_cast<float>(communicator.rank() + 1);
      }
      reducer.begin_step(step);
      reducer.ready_up_to(*stream, 10);
      reducer.last_ready(*stream);
      reducer.wait(*stream);
    }
    results[static_cast<size_t>(communicator.rank())] = arena;
  });
  for (const auto& error : errors) CHECK_FALSE(error);
  for (const auto& result : results) CHECK(result == results[0]);
  for (size_t i = 0; i < 250; ++i) {
    const double exact = 0.6 * static_cast<double>(i + 1);
    CHECK(std::abs(results[0][i] - exact) <= exact * (i < 240 ? 0x1p-10 : 1e-6));
  }
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
      reducer.wait(stream);
      for (size_t i = 0; i < arena.size(); ++i) require(arena[i] == 6.0 * static_cast<double>(i), "element {}", i);
    }
  });
  for (const auto& error : errors) CHECK_FALSE(error);
}
