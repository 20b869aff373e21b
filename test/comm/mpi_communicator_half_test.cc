#include "lockstep/comm/transport/mpi_communicator.h"

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/tensor/half.h"
#include "test/catch.h"
#include "test/comm/sum_values.h"
#include "test/comm/test_stream.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::common_bits;
using lockstep::testing::IdleStream;
using lockstep::testing::random_values;
using lockstep::testing::world;

TEST_CASE("a sum of 16-bit numbers is that of float32, rounded once, with the same bits on every rank") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const size_t count : {1, 2, 5, 1000, 65537, 1'000'003}) {
      std::vector<float> expected(count), values = random_values(world().rank(), count);
      for (int r = 0; r < world().size(); ++r) {
        std::vector<uint16_t> theirs(count);
        to_half(type, random_values(r, count), theirs);
        add_half(type, theirs, expected);
      }
      std::vector<uint16_t> rounded(count), halves(count);
      to_half(type, expected, rounded);
      to_half(type, values, halves);
      communicator.all_reduce(stream, HalfSpan{halves, type}, "halves");
      communicator.wait(stream);
      INFO(count << " of " << dtype_name(type));
      CHECK((halves == rounded));
      from_half(type, halves, values);
      common_bits(values);
    }
  }
}

TEST_CASE("a sum of 16-bit numbers is off by no more than the roundings of its terms and its own") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  constexpr size_t kCount = 100'000;
  for (const auto& [type, unit] : {std::pair{DType::bf16, 0x1p-8}, std::pair{DType::f16, 0x1p-11}}) {
    std::vector<double> exact(kCount), bound(kCount);
    for (int r = 0; r < world().size(); ++r) {
      const std::vector<float> theirs = random_values(r, kCount);
      for (size_t i = 0; i < kCount; ++i) {
        exact[i] += static_cast<double>(theirs[i]);
        bound[i] += std::abs(static_cast<double>(theirs[i])) * unit;
      }
    }
    std::vector<uint16_t> halves(kCount);
    to_half(type, random_values(world().rank(), kCount), halves);
    communicator.all_reduce(stream, HalfSpan{halves, type}, "halves");
    communicator.wait(stream);
    std::vector<float> sums(kCount);
    from_half(type, halves, sums);
    size_t outside = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const double limit = bound[i] + unit * (std::abs(exact[i]) + bound[i]) + 0x1p-24 * world().size();
      outside += std::abs(static_cast<double>(sums[i]) - exact[i]) > limit;
    }
    CHECK(outside == 0);
  }
}

TEST_CASE("sums of all types may be in flight together, and long ones are split") {
  MpiCommunicator communicator(world(), {.elements_per_call = 1000});
  IdleStream stream;
  const int n = world().size();
  for (int repeat = 0; repeat < 10; ++repeat) {
    std::vector<std::vector<uint16_t>> halves(4, std::vector<uint16_t>(2503, to_bf16(2)));
    std::vector<float> floats(5000, 1), small(3, 1);
    for (auto& values : halves) {
      communicator.all_reduce(stream, HalfSpan{values, DType::bf16}, "halves");
      communicator.all_reduce(stream, std::span(floats).first(500), "floats");
      communicator.all_reduce(stream, HalfSpan{}, "nothing");
      communicator.wait(stream);
    }
    for (auto& values : halves) {
      std::fill(values.begin(), values.end(), to_bf16(2));
      communicator.all_reduce(stream, HalfSpan{values, DType::bf16}, "halves");
      communicator.all_reduce_now(stream, small, "small");
    }
    communicator.all_reduce(stream, floats, "floats");
    communicator.wait(stream);
    for (const auto& values : halves) {
      CHECK(values == std::vector<uint16_t>(2503, to_bf16(2.0F * static_cast<float>(n))));
    }
    CHECK(floats.back() == static_cast<float>(n));
    CHECK(small == std::vector<float>(3, static_cast<float>(n * n * n * n)));
  }
}

TEST_CASE("NaN and infinity of one rank reach all ranks in 16 bits too, and fp16 overflows to infinity") {
  MpiCommunicator communicator(world());
  IdleStream stream;
  std::vector<float> values(100, 1);
  values[5] = 60000;
  if (world().rank() == world().size() - 1) {
    values[17] = std::numeric_limits<float>::quiet_NaN();
    values[99] = -std::numeric_limits<float>::infinity();
  }
  std::vector<uint16_t> halves(values.size());
  to_half(DType::f16, values, halves);
  communicator.all_reduce(stream, HalfSpan{halves, DType::f16}, "halves");
  communicator.wait(stream);
  from_half(DType::f16, halves, values);
  CHECK(std::isnan(values[17]));
  CHECK(values[99] == -std::numeric_limits<float>::infinity());
  CHECK(std::isinf(values[5]) == (world().size() > 1));
  CHECK(values[0] == static_cast<float>(world().size()));
}
