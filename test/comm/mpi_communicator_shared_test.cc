#include "lockstep/comm/transport/mpi_communicator.h"

#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "lockstep/tensor/half.h"
#include "test/catch.h"
#include "test/comm/no_files.h"
#include "test/comm/sum_values.h"
#include "test/comm/test_stream.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::common_bits;
using lockstep::testing::IdleStream;
using lockstep::testing::NoFiles;
using lockstep::testing::random_values;
using lockstep::testing::world;

TEST_CASE("sums in a shared buffer mix with all others") {
  MpiCommunicator communicator(world(), {.shared_memory = true});
  IdleStream stream;
  const int n = world().size();
  const auto count = static_cast<float>(n);
  constexpr size_t kFloats = 300'000, kHalves = 1003;
  const Buffer memory = communicator.shared_buffer(kFloats * sizeof(float));
  const Buffer narrow = communicator.shared_buffer(kHalves * sizeof(uint16_t));
  REQUIRE((memory.data() != nullptr) == (n > 1));
  if (n == 1) return;
  const std::span<float> shared(memory.as<float>(), kFloats);
  const std::span<uint16_t> halves(narrow.as<uint16_t>(), kHalves);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<float> own(2000, 1), small(7, static_cast<float>(repeat));
    std::vector<std::byte> bytes(1000, static_cast<std::byte>(world().rank()));
    for (size_t i = 0; i < kFloats; ++i) shared[i] = static_cast<float>(i % 1000);
    std::fill(halves.begin(), halves.end(), to_bf16(2));
    communicator.all_reduce(stream, shared.first(100'000), "in shared memory");
    communicator.all_reduce(stream, own, "by MPI");
    communicator.all_reduce(stream, HalfSpan{halves, DType::bf16}, "halves in shared memory");
    communicator.broadcast(stream, bytes, n - 1, "bytes");
    communicator.all_reduce(stream, shared.subspan(100'000, 1), "one number");
    communicator.all_reduce(stream, shared.first(0), "nothing");
    CHECK(communicator.all_reduce_now(stream, small, "at once") >= 0);
    communicator.all_reduce(stream, shared.subspan(100'001), "the rest");
    communicator.wait(stream);
    size_t wrong = 0;
    for (size_t i = 0; i < kFloats; ++i) wrong += shared[i] != count * static_cast<float>(i % 1000);
    CHECK(wrong == 0);
    CHECK(own == std::vector<float>(2000, count));
    CHECK(small == std::vector<float>(7, static_cast<float>(repeat * n)));
    CHECK(bytes == std::vector<std::byte>(1000, static_cast<std::byte>(n - 1)));
    CHECK(halves.back() == to_bf16(2 * count));
  }
  CHECK(communicator.statistics().operations == 20 * 8);
}

TEST_CASE("a sum at once of values in a shared buffer keeps no order with the others") {
  MpiCommunicator communicator(world(), {.shared_memory = true});
  IdleStream stream;
  const Buffer memory = communicator.shared_buffer(4'000'000);
  if (!memory.data()) return;
  const std::span<float> values(memory.as<float>(), 1'000'000);
  std::fill(values.begin(), values.end(), 1.0F);
  communicator.all_reduce(stream, values.subspan(10), "large");
  communicator.all_reduce_now(stream, values.first(10), "at once");
  CHECK(values[9] == static_cast<float>(world().size()));
  communicator.wait(stream);
  CHECK(values[10] == static_cast<float>(world().size()));
  CHECK(values.back() == static_cast<float>(world().size()));
}

TEST_CASE("sums in a shared buffer have the same bits on every rank and in every repeat") {
  MpiCommunicator communicator(world(), {.shared_memory = true});
  IdleStream stream;
  const std::vector<float> start = random_values(world().rank(), 1'000'003);
  const Buffer memory = communicator.shared_buffer(start.size() * sizeof(float));
  if (!memory.data()) return;
  const std::span<float> values(memory.as<float>(), start.size());
  uint64_t first = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::copy(start.begin(), start.end(), values.begin());
    communicator.all_reduce(stream, values.first(300'001), "first");
    communicator.all_reduce(stream, values.subspan(300'001), "second");
    communicator.wait(stream);
    const uint64_t bits = common_bits({values.begin(), values.end()});
    if (repeat == 0) first = bits;
    CHECK(bits == first);
  }
}

TEST_CASE("where no memory can be shared sums go through MPI") {
  IdleStream stream;
  const auto check = [&](MpiCommunicator& communicator) {
    CHECK(communicator.shared_buffer(1000).data() == nullptr);
    std::vector<float> values(1000, 1);
    communicator.all_reduce(stream, values, "values");
    communicator.wait(stream);
    CHECK(values == std::vector<float>(1000, static_cast<float>(world().size())));
  };
  {
    MpiCommunicator communicator(world());  // not asked for
    check(communicator);
  }
  const bool here = world().rank() == world().size() - 1;
  {
    const NoFiles no_files(here);
    MpiCommunicator communicator(world(), {.shared_memory = true});
    check(communicator);
  }
  MpiCommunicator communicator(world(), {.shared_memory = true});  // it runs out of it later
  const NoFiles no_files(here);
  for (int times = 0; times < 2; ++times) check(communicator);
  if (world().size() > 1)
    CHECK_THAT(communicator.plan(),
               ContainsSubstring("ranks, which cannot share memory") && !ContainsSubstring("memory, which"));
}

TEST_CASE("a rank that waits for another in a shared buffer leaves the core alone") {
  MpiCommunicator communicator(world(), {.shared_memory = true});
  IdleStream stream;
  const Buffer memory = communicator.shared_buffer(4000);
  if (!memory.data()) return;
  const auto cpu_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  world().barrier({"the start"});
  const double begin = cpu_seconds();
  if (world().rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  communicator.all_reduce(stream, std::span(memory.as<float>(), 1000), "values");
  communicator.wait(stream);
  CHECK(cpu_seconds() - begin < 0.1);
}
