#include "comm/transport/shm_all_reduce.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/tensor/half.h"
#include "test/catch.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::world;

namespace {

// Of a rank that has nothing else to do.
void finish(ShmAllReduce& sums, int64_t number, const ShmRange& part) {
  const Doorbell bell = sums.bell();
  for (uint32_t rings = bell.rings(); !sums.advance(number, part); rings = bell.rings()) {
    bell.wait(rings, std::chrono::milliseconds(100));
  }
}

template <class T>
void sum(ShmAllReduce& sums, std::span<T> values, DType type) {
  const auto part = sums.find(std::as_bytes(values), type);
  REQUIRE(part.has_value());
  finish(sums, sums.start(), *part);
}

template <class T>
T value_of(int rank, size_t i) {
  return static_cast<T>(random_unit_float(static_cast<uint64_t>(rank), i)) - T{0.5} + T(1e-3) * static_cast<T>(rank);
}

template <class T>
std::span<T> allocate(ShmAllReduce& sums, size_t count) {
  const auto [bytes, reason] = sums.allocate(world(), count * sizeof(T));
  REQUIRE(reason.empty());
  return {reinterpret_cast<T*>(bytes.data()), count};
}

std::unique_ptr<ShmAllReduce> make_sums() {
  auto [sums, reason] = ShmAllReduce::make(
      world(), HostLayout(std::vector<int64_t>(static_cast<size_t>(world().size())), world().rank()));
  REQUIRE(sums != nullptr);
  return std::move(sums);
}

// Sums of every length at every place against those in the order of ranks, to the bit; nothing beside them changes.
template <class T>
void check_sums(DType type) {
  const auto sums = make_sums();
  constexpr size_t kRoom = 300'007;
  const std::span<T> values = allocate<T>(*sums, kRoom);
  for (const size_t begin : {0, 1, 17}) {
    for (const size_t count : {1, 2, 3, 15, 16, 17, 63, 1000, 4095, 4096, 4097, 65537, 299'990}) {
      for (size_t i = 0; i < kRoom; ++i) values[i] = value_of<T>(world().rank(), i);
      sum(*sums, values.subspan(begin, count), type);
      size_t wrong = 0;
      for (size_t i = 0; i < kRoom; ++i) {
        T expected = value_of<T>(0, i);
        for (int r = 1; r < world().size(); ++r) expected += value_of<T>(r, i);
        if (i < begin || i >= begin + count) expected = value_of<T>(world().rank(), i);
        wrong += values[i] != expected;
      }
      INFO(count << " from " << begin);
      CHECK(wrong == 0);
      world().barrier({"the next length"});
    }
  }
}

}  // namespace

TEST_CASE("a shared sum is that in the order of ranks, for any length and place") {
  check_sums<float>(DType::f32);
  check_sums<double>(DType::f64);
}

TEST_CASE("a shared sum of 16-bit numbers is that of float32, rounded once") {
  const auto sums = make_sums();
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const size_t count : {1, 2, 31, 32, 33, 1000, 65537}) {
      const std::span<uint16_t> values = allocate<uint16_t>(*sums, count);
      std::vector<float> expected(count), mine(count);
      for (int r = 0; r < world().size(); ++r) {
        std::vector<uint16_t> theirs(count);
        for (size_t i = 0; i < count; ++i) mine[i] = value_of<float>(r, i);
        to_half(type, mine, theirs);
        add_half(type, theirs, expected);
        if (r == world().rank()) std::copy(theirs.begin(), theirs.end(), values.begin());
      }
      sum(*sums, values, type);
      std::vector<uint16_t> rounded(count);
      to_half(type, expected, rounded);
      INFO(count << " of " << dtype_name(type));
      CHECK(std::equal(values.begin(), values.end(), rounded.begin()));
    }
  }
}

TEST_CASE("a shared sum's error is that of float32's additions") {
  const auto sums = make_sums();
  constexpr size_t kCount = 100'000;
  const std::span<float> values = allocate<float>(*sums, kCount);
  std::vector<double> exact(kCount), size(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    values[i] = value_of<float>(world().rank(), i);
    for (int r = 0; r < world().size(); ++r) {
      exact[i] += static_cast<double>(value_of<float>(r, i));
      size[i] += std::abs(static_cast<double>(value_of<float>(r, i)));
    }
  }
  sum(*sums, values, DType::f32);
  size_t outside = 0;
  for (size_t i = 0; i < kCount; ++i) {
    outside += std::abs(static_cast<double>(values[i]) - exact[i]) > (world().size() - 1) * 0x1p-24 * size[i] * 1.001;
  }
  CHECK(outside == 0);
}

TEST_CASE("NaN and infinity of one rank reach all ranks in shared memory") {
  const auto sums = make_sums();
  const std::span<float> values = allocate<float>(*sums, 10'000);
  std::fill(values.begin(), values.end(), 1.0F);
  if (world().rank() == world().size() - 1) {
    values[17] = std::numeric_limits<float>::quiet_NaN();
    values[9999] = -std::numeric_limits<float>::infinity();
  }
  sum(*sums, values, DType::f32);
  CHECK(std::isnan(values[17]));
  CHECK(values[9999] == -std::numeric_limits<float>::infinity());
  CHECK(values[0] == static_cast<float>(world().size()));
}

TEST_CASE("ranks may be many sums ahead of each other") {
  const auto sums = make_sums();
  constexpr size_t kSums = 50, kEach = 5000;
  const std::span<float> values = allocate<float>(*sums, kSums * kEach);
  for (int slowest = 0; slowest < world().size(); ++slowest) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / kEach);
    world().barrier({"the next turn"});
    struct Started {
      int64_t number;
      ShmRange part;
    };
    std::vector<Started> started;
    for (size_t s = 0; s < kSums; ++s) {
      const auto part = sums->find(std::as_bytes(values.subspan(s * kEach, kEach)), DType::f32);
      REQUIRE(part.has_value());
      started.push_back({sums->start(), *part});
      if (world().rank() == slowest) finish(*sums, started.back().number, started.back().part);
      for (const Started& b : started) sums->advance(b.number, b.part);
    }
    for (const Started& b : started) finish(*sums, b.number, b.part);
    for (size_t i = 0; i < values.size(); i += kEach / 4) {
      CHECK(values[i] == static_cast<float>(world().size()) * static_cast<float>(i / kEach));
    }
    world().barrier({"all have looked"});
  }
}

TEST_CASE("only values that lie in one allocation are found there") {
  const auto sums = make_sums();
  const std::span<float> first = allocate<float>(*sums, 1000), second = allocate<float>(*sums, 500);
  const std::vector<float> elsewhere(1000);
  const auto part = sums->find(std::as_bytes(second.subspan(100, 400)), DType::f32);
  REQUIRE(part.has_value());
  CHECK(part->offset == 400);
  CHECK(part->count == 400);
  CHECK(part->memory->block(world().rank()) == reinterpret_cast<std::byte*>(second.data()));
  CHECK(sums->find(std::as_bytes(first), DType::f32).has_value());
  CHECK_FALSE(sums->find(std::as_bytes(std::span(elsewhere)), DType::f32).has_value());
  CHECK_FALSE(sums->find(std::as_bytes(first.first(0)), DType::f32).has_value());
  CHECK_FALSE(sums->find(std::as_bytes(std::span(first.data() + 1, 1000)), DType::f32).has_value());
}
