// Values for tests of sums over ranks, and their comparison.
#pragma once

#include <cstring>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/comm/group/process_group.h"
#include "test/catch.h"
#include "test/mpi_main.h"

namespace lockstep::testing {

inline std::vector<float> random_values(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_unit_float(static_cast<uint64_t>(rank), i) - 0.5F;
  return values;
}

// Returns a hash of the bits, and checks that it is the same on every rank.
inline uint64_t common_bits(const std::vector<float>& values) {
  uint64_t hash = 0;
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash = splitmix64(hash ^ bits);
  }
  const int64_t mine = static_cast<int64_t>(hash);
  const std::vector<int64_t> all = world().all_gather(std::span(&mine, 1), {"bits"});
  for (const int64_t other : all) CHECK(other == mine);
  return hash;
}

}  // namespace lockstep::testing
