#include "comm/transport/shared_memory.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <vector>

#include "test/catch.h"
#include "test/comm/no_files.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::NoFiles;
using lockstep::testing::world;

namespace {

// Memory of all ranks.
SharedMemory::Result make_shared(size_t bytes) {
  std::vector<int> ranks(static_cast<size_t>(world().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return SharedMemory::make(world(), ranks, bytes);
}

}  // namespace

TEST_CASE("what a rank writes into any rank's memory all ranks read") {
  constexpr size_t kBytes = 100'003;
  const auto [memory, reason] = make_shared(kBytes);
  REQUIRE(memory != nullptr);
  CHECK(reason.empty());
  CHECK(memory->bytes() == kBytes);
  CHECK(memory->ranks() == world().size());
  for (int r = 0; r < world().size(); ++r) {
    CHECK(std::all_of(memory->block(r), memory->block(r) + kBytes, [](std::byte b) { return b == std::byte{0}; }));
  }
  world().barrier({"all have seen zeros"});
  const int mine = world().rank();
  for (int r = 0; r < world().size(); ++r) memory->block(r)[mine] = static_cast<std::byte>(16 * r + mine + 1);
  memory->block(mine)[kBytes - 1] = static_cast<std::byte>(200 + mine);
  world().barrier({"all have written"});
  for (int r = 0; r < world().size(); ++r) {
    for (int writer = 0; writer < world().size(); ++writer) {
      CHECK(memory->block(r)[writer] == static_cast<std::byte>(16 * r + writer + 1));
    }
    CHECK(memory->block(r)[kBytes - 1] == static_cast<std::byte>(200 + r));
  }
  world().barrier({"all have read"});
}

TEST_CASE("shared memory may be larger than a container's /dev/shm, and leaves no descriptor") {
  const auto entries = [](const char* directory) {
    return std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator());
  };
  const auto descriptors = entries("/proc/self/fd");
  const auto [memory, reason] = make_shared(size_t{80} << 20);
  REQUIRE(memory != nullptr);
  memory->block(world().rank())[(size_t{80} << 20) - 1] = std::byte{1};
  world().barrier({"the memory is there"});
  CHECK(entries("/proc/self/fd") == descriptors);
  world().barrier({"all have counted"});
}

TEST_CASE("where one rank cannot have memory none has, and all know which and why") {
  for (int without = 0; without < world().size(); ++without) {
    SharedMemory::Result attempt;
    {
      const NoFiles no_files(world().rank() == without);
      attempt = make_shared(1 << 20);
    }
    CHECK(attempt.memory == nullptr);
    CHECK_THAT(attempt.reason, ContainsSubstring(world().describe(without) + ": ftruncate: File too large"));
    CHECK(make_shared(1 << 20).memory != nullptr);
  }
}
