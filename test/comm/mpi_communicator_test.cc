#include "lockstep/comm/transport/mpi_communicator.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "test/catch.h"
#include "test/comm/sum_values.h"
#include "test/comm/test_stream.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::common_bits;
using lockstep::testing::IdleStream;
using lockstep::testing::random_values;
using lockstep::testing::world;

TEST_CASE("a sum is right for lengths from one element to megabytes") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  for (const size_t count : {1, 2, 3, 15, 16, 17, 1000, 4096, 65537, 1'000'003, 2'500'000}) {
    std::vector<float> values = random_values(world().rank(), count);
    std::vector<double> expected(count);
    for (int r = 0; r < world().size(); ++r) {
      const std::vector<float> theirs = random_values(r, count);
      for (size_t i = 0; i < count; ++i) expected[i] += static_cast<double>(theirs[i]);
    }
    communicator.all_reduce(stream, values, "values");
    communicator.wait(stream);
    double worst = 0;
    for (size_t i = 0; i < count; ++i) worst = std::max(worst, std::abs(static_cast<double>(values[i]) - expected[i]));
    INFO("count " << count);
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("a sum of doubles keeps their precision") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  std::vector<double> values(1001, 1.0 + 1e-12);
  communicator.all_reduce(stream, values, "values");
  communicator.wait(stream);
  for (const double value : values) REQUIRE(value == Approx(world().size() * (1.0 + 1e-12)).epsilon(1e-15));
}

TEST_CASE("many sums in flight each give their own result") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  const int n = world().size();
  std::vector<float> arena(400'000);
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::fill(arena.begin(), arena.end(), static_cast<float>(world().rank()));
    std::span<float> rest = arena;
    int bucket = 0;
    while (!rest.empty()) {
      const size_t count = std::min<size_t>(rest.size(), 1 + static_cast<size_t>(bucket) * 997);
      for (float& value : rest.first(count)) value += static_cast<float>(bucket);
      communicator.all_reduce(stream, rest.first(count), "bucket " + std::to_string(bucket));
      rest = rest.subspan(count);
      ++bucket;
    }
    communicator.wait(stream);
    size_t at = 0;
    for (int b = 0; b < bucket; ++b) {
      const size_t end = std::min(arena.size(), at + 1 + static_cast<size_t>(b) * 997);
      bool right = true;
      for (; at < end; ++at) right = right && arena[at] == static_cast<float>(n * (n - 1) / 2 + n * b);
      CHECK(right);
    }
  }
}

TEST_CASE("a sum at once is there before the sums that are on their way, and disturbs none of them") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  const int n = world().size();
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<std::vector<float>> large(3, std::vector<float>(300'000, static_cast<float>(world().rank())));
    for (auto& values : large) {
      communicator.all_reduce(stream, values, "large");
      std::vector<float> small(7, static_cast<float>(repeat));
      CHECK(communicator.all_reduce_now(stream, small, "small") >= 0);
      CHECK(small == std::vector<float>(7, static_cast<float>(repeat * n)));
    }
    communicator.wait(stream);
    for (const auto& values : large) {
      CHECK(values == std::vector<float>(300'000, static_cast<float>(n * (n - 1) / 2)));
    }
  }
}

TEST_CASE("sums have the same bits on every rank and in every repeat") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  const std::vector<float> start = random_values(world().rank(), 1'000'003);
  uint64_t first = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<float> values = start;
    communicator.all_reduce(stream, std::span(values).first(300'001), "first");
    communicator.all_reduce(stream, std::span(values).subspan(300'001), "second");
    communicator.wait(stream);
    const uint64_t bits = common_bits(values);
    if (repeat == 0) first = bits;
    CHECK(bits == first);
  }
}

TEST_CASE("terms of a long sum are added in the order of ranks") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  constexpr size_t kCount = 100'003;
  std::vector<float> values = random_values(world().rank(), kCount), expected = random_values(0, kCount);
  for (int r = 1; r < world().size(); ++r) {
    const std::vector<float> theirs = random_values(r, kCount);
    for (size_t i = 0; i < kCount; ++i) expected[i] += theirs[i];
  }
  communicator.all_reduce(stream, values, "values");
  communicator.wait(stream);
  CHECK((values == expected));
}

TEST_CASE("NaN and infinity of one rank reach all ranks") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  std::vector<float> values(10'000, 1.0F);
  if (world().rank() == world().size() - 1) {
    values[17] = std::numeric_limits<float>::quiet_NaN();
    values[9999] = std::numeric_limits<float>::infinity();
  }
  communicator.all_reduce(stream, values, "values");
  communicator.wait(stream);
  CHECK(std::isnan(values[17]));
  CHECK(std::isinf(values[9999]));
  CHECK(values[0] == static_cast<float>(world().size()));
}

TEST_CASE("an operation longer than one call is split without a seam") {
  MpiCommunicator communicator(world(), {.elements_per_call = 1000});
  IdleStream stream;
  std::vector<float> values(5003, 1.0F);
  communicator.all_reduce(stream, values, "values");
  std::vector<std::byte> bytes(2500, static_cast<std::byte>(world().rank()));
  communicator.broadcast(stream, bytes, world().size() - 1, "bytes");
  communicator.wait(stream);
  CHECK(values == std::vector<float>(5003, static_cast<float>(world().size())));
  CHECK(bytes == std::vector<std::byte>(2500, static_cast<std::byte>(world().size() - 1)));
}

TEST_CASE("every rank can be the root of a broadcast") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  for (int root = 0; root < world().size(); ++root) {
    std::vector<std::byte> bytes(700'001, static_cast<std::byte>(10 + world().rank()));
    communicator.broadcast(stream, bytes, root, "bytes");
    communicator.wait(stream);
    CHECK(bytes == std::vector<std::byte>(700'001, static_cast<std::byte>(10 + root)));
  }
}

TEST_CASE("the process group may be used while sums are in progress") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  const int64_t n = world().size();
  for (int repeat = 0; repeat < 10; ++repeat) {
    std::vector<float> values(1'000'000, 1.0F);
    communicator.all_reduce(stream, values, "values");
    int64_t count = world().rank();
    world().all_reduce_sum(std::span(&count, 1), {"a count"});
    CHECK(count == n * (n - 1) / 2);
    world().barrier({"the next turn"});
    communicator.wait(stream);
    CHECK(values.front() == static_cast<float>(n));
    CHECK(values.back() == static_cast<float>(n));
  }
}

TEST_CASE("joining with nothing in progress returns, and an empty sum is done at once") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  communicator.wait(stream);
  communicator.all_reduce(stream, std::span<float>(), "nothing");
  communicator.wait(stream);
  CHECK(communicator.rank() == world().rank());
  CHECK(communicator.size() == world().size());
}

TEST_CASE("statistics and the observer count every operation once") {
  std::mutex mutex;
  std::vector<CommRecord> records;
  MpiCommunicator communicator(world(), {.observer = [&](const CommRecord& record) {
                                 std::lock_guard lock(mutex);
                                 records.push_back(record);
                               }});
  IdleStream stream;
  std::vector<float> values(3000);
  communicator.all_reduce(stream, std::span(values).first(1000), "first");
  communicator.all_reduce(stream, std::span(values).subspan(1000), "second");
  const double waited = communicator.wait(stream);
  if (world().size() == 1) return;  // nothing is sent
  CHECK(communicator.statistics().operations == 2);
  CHECK(communicator.statistics().bytes == 12'000);
  CHECK(communicator.statistics().exposed_seconds == Approx(waited));
  CHECK(communicator.statistics().straggler_wait_seconds.size() == static_cast<size_t>(world().size()));
  std::lock_guard lock(mutex);
  REQUIRE(records.size() == 2);
  for (const CommRecord& record : records) {
    CHECK((record.label == "first" || record.label == "second"));
    CHECK(record.queued <= record.started);
    CHECK(record.started <= record.finished);
  }
}

TEST_CASE("the rank for which the others wait alone is known while they wait") {
  const int last = world().size() - 1;
  MpiCommunicator communicator(world());
  IdleStream stream;
  std::vector<float> values(100'000, 1);
  const auto waited = [&](int rank) {
    return communicator.statistics().straggler_wait_seconds[static_cast<size_t>(rank)];
  };
  if (last == 0) return;
  if (world().rank() != last) {
    communicator.all_reduce(stream, values, "values");
    for (int look = 0; look < 10'000 && waited(last) < 0.5; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(waited(last) >= 0.5);
    for (int rank = 0; rank < last; ++rank) CHECK(waited(rank) < 0.25);
  }
  world().barrier({"the last rank's sum"});
  if (world().rank() == last) communicator.all_reduce(stream, values, "values");
  communicator.wait(stream);
  for (int rank = 0; world().rank() == last && rank < last; ++rank) CHECK(waited(rank) < 0.25);
  CHECK(values.back() == static_cast<float>(world().size()));
}

TEST_CASE("a communicator nobody used can be destroyed") { MpiCommunicator communicator(world()); }
