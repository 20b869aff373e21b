// Sums within and between hosts, on ranks of one host that are divided into several as if they were apart.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/comm/transport/mpi_communicator.h"
#include "lockstep/tensor/half.h"
#include "test/catch.h"
#include "test/comm/test_stream.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::IdleStream;
using lockstep::testing::world;

namespace {

// The hosts of this many ranks, in the form of ProcessGroup::first_on_host(): one or more ranks a host, in order or
// dealt in turn.
std::vector<std::vector<int64_t>> layouts() {
  switch (world().size()) {
    case 2:
      return {{0, 0}};
    case 3:
      return {{0, 0, 2}, {0, 1, 1}, {0, 1, 0}};
    case 4:
      return {{0, 0, 2, 2}, {0, 1, 0, 1}, {0, 0, 0, 3}, {0, 1, 1, 1}, {0, 0, 2, 3}, {0, 0, 0, 0}};
    default:
      return {};
  }
}

MpiCommunicatorOptions on_hosts(const std::vector<int64_t>& hosts) {
  return {.shared_memory = true, .first_on_host = hosts};
}

float value_of(int rank, size_t i) { return random_unit_float(static_cast<uint64_t>(rank), i) - 0.5F; }

// Adds up the ranks of each host in order, then the hosts, each of whose sums is rounded as the total is.
float expected(const std::vector<int64_t>& hosts, size_t i, const auto& rounded) {
  float total = 0;
  for (size_t first = 0; first < hosts.size(); ++first) {
    if (hosts[first] != static_cast<int64_t>(first)) continue;
    float of_host = value_of(static_cast<int>(first), i);
    for (size_t r = first + 1; r < hosts.size(); ++r) {
      if (hosts[r] == static_cast<int64_t>(first)) of_host += value_of(static_cast<int>(r), i);
    }
    total = first == 0 ? rounded(of_host) : total + rounded(of_host);
  }
  return rounded(total);
}

}  // namespace

TEST_CASE("a sum over hosts adds ranks of a host and then hosts, to the bit, at any length and place") {
  for (const auto& hosts : layouts()) {
    MpiCommunicator communicator(world(), on_hosts(hosts));
    IdleStream stream;
    constexpr size_t kRoom = 150'007;
    const Buffer memory = communicator.shared_buffer(kRoom * sizeof(float));
    REQUIRE(memory.data() != nullptr);
    const std::span<float> values(memory.as<float>(), kRoom);
    for (const size_t begin : {0, 17}) {
      for (const size_t count : {1, 2, 16, 17, 63, 1000, 4097, 65537, 149'990}) {
        for (size_t i = 0; i < kRoom; ++i) values[i] = value_of(world().rank(), i);
        communicator.all_reduce(stream, values.subspan(begin, count), "values");
        communicator.wait(stream);
        size_t wrong = 0;
        for (size_t i = 0; i < kRoom; ++i) {
          const bool inside = i >= begin && i < begin + count;
          wrong += values[i] != (inside ? expected(hosts, i, std::identity()) : value_of(world().rank(), i));
        }
        INFO(count << " from " << begin);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("between hosts the sum of each host is rounded to 16 bits once, and so is the total") {
  for (const auto& hosts : layouts()) {
    MpiCommunicatorOptions options = on_hosts(hosts);
    options.elements_per_call = 5000;
    MpiCommunicator communicator(world(), options);
    IdleStream stream;
    constexpr size_t kCount = 70'001;
    const Buffer memory = communicator.shared_buffer(kCount * sizeof(float));
    const std::span<float> values(memory.as<float>(), kCount);
    const bool several = std::ranges::any_of(hosts, [](int64_t first) { return first > 0; });
    CHECK(communicator.rounds_between_hosts(values) == several);
    CHECK_FALSE(communicator.rounds_between_hosts(std::vector<float>(10)));
    for (const DType type : {DType::bf16, DType::f16}) {
      for (size_t i = 0; i < kCount; ++i) values[i] = value_of(world().rank(), i);
      communicator.all_reduce_rounded(stream, values, type, "values");
      communicator.wait(stream);
      const auto rounded = [&](float value) {
        if (!several) return value;
        uint16_t half = 0;
        to_half(type, std::span(&value, 1), std::span(&half, 1));
        from_half(type, std::span(&half, 1), std::span(&value, 1));
        return value;
      };
      size_t wrong = 0;
      for (size_t i = 0; i < kCount; ++i) wrong += values[i] != expected(hosts, i, rounded);
      CHECK(wrong == 0);
      world().barrier({"the next format"});
    }
  }
}

TEST_CASE("many sums over hosts may be in flight, with sums of other kinds between them") {
  const int n = world().size();
  for (const auto& hosts : layouts()) {
    MpiCommunicatorOptions options = on_hosts(hosts);
    options.elements_per_call = 1000;
    MpiCommunicator communicator(world(), options);
    IdleStream stream;
    constexpr size_t kEach = 7001, kSums = 20;
    const Buffer memory = communicator.shared_buffer(kSums * kEach * sizeof(float));
    const Buffer narrow = communicator.shared_buffer(1003 * sizeof(uint16_t));
    const std::span<float> values(memory.as<float>(), kSums * kEach);
    const std::span<uint16_t> halves(narrow.as<uint16_t>(), 1003);
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::vector<float> own(20'000, 1), small(7, 2);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / kEach);
      std::fill(halves.begin(), halves.end(), to_bf16(2));
      for (size_t s = 0; s < kSums; ++s) {
        communicator.all_reduce(stream, values.subspan(s * kEach, kEach), "a bucket");
        if (s == 3) communicator.all_reduce(stream, own, "in memory of its own");
        if (s == 5) communicator.all_reduce_now(stream, small, "at once");
        if (s == 7) communicator.all_reduce(stream, HalfSpan{halves, DType::bf16}, "halves");
      }
      communicator.wait(stream);
      size_t wrong = 0;
      for (size_t i = 0; i < values.size(); ++i)
        wrong += values[i] != static_cast<float>(n) * static_cast<float>(i / kEach);
      CHECK(wrong == 0);
      CHECK(own == std::vector<float>(20'000, static_cast<float>(n)));
      CHECK(small == std::vector<float>(7, 2 * static_cast<float>(n)));
      CHECK(halves.back() == to_bf16(2 * static_cast<float>(n)));
    }
  }
}

TEST_CASE("the plan of a sum names hosts and ranks") {
  const auto plan = [](MpiCommunicator& communicator) {
    const Buffer memory = communicator.shared_buffer(1000);
    return communicator.plan();
  };
  MpiCommunicator over_mpi(world());
  const int n = world().size();
  CHECK(plan(over_mpi) == (n == 1 ? "" : fmt::format("gradients are summed over MPI by {} ranks", n)));
  if (n != 3) return;
  MpiCommunicator one(world(), on_hosts({0, 0, 0})), two(world(), on_hosts({0, 0, 2})),
      three(world(), on_hosts({0, 1, 2}));
  CHECK(plan(one) == "gradients are summed in memory that the 3 ranks of this host share");
  CHECK(plan(two) ==
        "gradients are summed in two stages: in memory that the ranks of a host share, then over MPI between 2 hosts "
        "with 1 to 2 ranks");
  CHECK(plan(three) == "gradients are summed over MPI by 3 ranks, each on a host of its own");
}

TEST_CASE("the rank for which the others of its host wait is known in sums over hosts") {
  if (world().size() != 4) return;
  MpiCommunicator communicator(world(), on_hosts({0, 0, 2, 2}));
  IdleStream stream;
  const Buffer memory = communicator.shared_buffer(400'000);
  const std::span<float> values(memory.as<float>(), 100'000);
  const auto waited = [&](int rank) {
    return communicator.statistics().straggler_wait_seconds[static_cast<size_t>(rank)];
  };
  // Rank 2 waits for rank 3, rank 0 for rank 2's lane, rank 1 for rank 3's.
  constexpr int kWaitsFor[] = {2, 3, 3};
  if (world().rank() != 3) {
    const int late = kWaitsFor[world().rank()];
    communicator.all_reduce(stream, values, "values");
    for (int look = 0; look < 10'000 && waited(late) < 0.5; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(waited(late) >= 0.5);
  }
  world().barrier({"the last rank's sum"});
  if (world().rank() == 3) communicator.all_reduce(stream, values, "values");
  communicator.wait(stream);
}
