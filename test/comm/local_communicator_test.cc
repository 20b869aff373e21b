#include "test/comm/local_communicator.h"

#include "lockstep/base/error.h"
#include "lockstep/tensor/half.h"
#include "test/catch.h"
#include "test/comm/rank_threads.h"
#include "test/comm/test_stream.h"

using namespace lockstep;
using lockstep::testing::IdleStream;
using lockstep::testing::run_ranks;

namespace {

void expect_error(const std::exception_ptr& error, ExitCode code, const std::string& text) {
  REQUIRE(error);
  try {
    std::rethrow_exception(error);
  } catch (const Error& thrown) {
    CHECK(thrown.code() == code);
    CHECK_THAT(thrown.what(), ContainsSubstring(text));
  }
}

}  // namespace

TEST_CASE("threads sum in the order of ranks") {
  // 2^24 + 1 - 2^24 in float is 0 in one order and 1 in another.
  const std::vector<float> parts = {16777216.0F, 1.0F, -16777216.0F};
  std::vector<std::vector<float>> results(3);
  const auto errors = run_ranks(3, 30, [&](LocalCommunicator& communicator) {
    IdleStream stream;
    std::vector<float> values(100, parts[static_cast<size_t>(communicator.rank())]);
    communicator.all_reduce(stream, values, "values");
    communicator.wait(stream);
    results[static_cast<size_t>(communicator.rank())] = values;
  });
  for (const auto& error : errors) CHECK_FALSE(error);
  for (const auto& result : results) CHECK(result == std::vector<float>(100, (16777216.0F + 1.0F) - 16777216.0F));
}

TEST_CASE("numbers of 16 bits are added in float32 and rounded once") {
  // 256 + 1 is no bfloat16: rounded after each term the sum would stay 256.
  std::vector<std::vector<uint16_t>> results(3);
  const auto errors = run_ranks(3, 30, [&](LocalCommunicator& communicator) {
    IdleStream stream;
    std::vector<uint16_t> values(10, to_bf16(communicator.rank() == 0 ? 256 : 1));
    communicator.all_reduce(stream, HalfSpan{values, DType::bf16}, "values");
    communicator.wait(stream);
    results[static_cast<size_t>(communicator.rank())] = values;
  });
  for (const auto& error : errors) CHECK_FALSE(error);
  for (const auto& result : results) CHECK(result == std::vector<uint16_t>(10, to_bf16(258)));
}

TEST_CASE("several operations of both types and broadcasts may be in progress at once") {
  const auto errors = run_ranks(4, 30, [&](LocalCommunicator& communicator) {
    IdleStream stream;
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<float> floats(10, 1.0F);
      std::vector<double> doubles(7, static_cast<double>(communicator.rank()));
      std::vector<std::byte> bytes(5, static_cast<std::byte>(communicator.rank()));
      communicator.all_reduce(stream, floats, "floats");
      communicator.all_reduce(stream, doubles, "doubles");
      communicator.broadcast(stream, bytes, 2, "bytes");
      communicator.wait(stream);
      require(floats == std::vector<float>(10, 4.0F), "floats");
      require(doubles == std::vector<double>(7, 6.0), "doubles");
      require(bytes == std::vector<std::byte>(5, std::byte{2}), "bytes");
    }
    require(communicator.statistics().operations == 60, "operations");
    require(communicator.statistics().bytes == 20 * (40 + 56 + 5), "bytes counted");
  });
  for (const auto& error : errors) CHECK_FALSE(error);
}

TEST_CASE("a sum at once is there when it returns") {
  const auto errors = run_ranks(3, 30, [&](LocalCommunicator& communicator) {
    IdleStream stream;
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<float> values(10, 1.0F);
      communicator.all_reduce_now(stream, values, "values");
      require(values == std::vector<float>(10, 3.0F), "values");
    }
  });
  for (const auto& error : errors) CHECK_FALSE(error);
}

TEST_CASE("a rank that does not come stalls the others by name of the operation") {
  const auto errors = run_ranks(3, 0.1, [&](LocalCommunicator& communicator) {
    if (communicator.rank() == 1) return;
    IdleStream stream;
    std::vector<float> values(4);
    communicator.all_reduce(stream, values, "step 7 bucket 2");
    communicator.wait(stream);
  });
  CHECK_FALSE(errors[1]);
  expect_error(errors[0], ExitCode::stalled, "'step 7 bucket 2'");
  expect_error(errors[2], ExitCode::stalled, "2 of 3 ranks");
}

TEST_CASE("ranks whose calls differ all hear of it") {
  const auto errors = run_ranks(2, 30, [&](LocalCommunicator& communicator) {
    IdleStream stream;
    std::vector<float> values(communicator.rank() == 0 ? 4 : 5);
    communicator.all_reduce(stream, values, "values");
    communicator.wait(stream);
  });
  expect_error(errors[0], ExitCode::internal, "4 and 5 elements");
  expect_error(errors[1], ExitCode::internal, "4 and 5 elements");
}
