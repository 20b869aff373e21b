#include "lockstep/comm/group/parameter_audit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include "lockstep/base/random.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/rank_names.h"

namespace lockstep {
namespace {

constexpr size_t kLanes = 4;  // independent dependency chains, so that multiplications overlap

uint64_t mix(uint64_t state, uint64_t word) {
  constexpr uint64_t kOddA = 0x9e3779b97f4a7c15ULL, kOddB = 0xd1342543de82ef95ULL;
  return std::rotl(state ^ (word * kOddA), 29) * kOddB;
}

uint64_t word_at(const std::byte* data, size_t bytes = sizeof(uint64_t)) {
  uint64_t word = 0;
  std::memcpy(&word, data, bytes);
  return word;
}

}  // namespace

uint64_t hash_bytes(std::span<const std::byte> bytes) {
  std::array<uint64_t, kLanes> lanes = {1, 2, 3, 4};
  constexpr size_t kBlock = kLanes * sizeof(uint64_t);
  const std::byte* data = bytes.data();
  size_t remaining = bytes.size();
  for (; remaining >= kBlock; data += kBlock, remaining -= kBlock) {
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], word_at(data + i * sizeof(uint64_t)));
  }
  uint64_t hash = splitmix64(bytes.size());
  for (const uint64_t lane : lanes) hash = mix(hash, lane);
  while (remaining > 0) {
    const size_t count = std::min(remaining, sizeof(uint64_t));
    hash = mix(hash, word_at(data, count));
    data += count;
    remaining -= count;
  }
  return splitmix64(hash);
}

std::optional<AuditDifference> first_difference(std::span<const int64_t> hashes, int ranks) {
  const size_t ranges = hashes.size() / static_cast<size_t>(ranks);
  for (size_t range = 0; range < ranges; ++range) {
    std::map<int64_t, int> votes;
    for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) ++votes[hashes[r * ranges + range]];
    if (votes.size() == 1) continue;
    int64_t majority = hashes[range];
    for (size_t r = 1; r < static_cast<size_t>(ranks); ++r) {
      const int64_t other = hashes[r * ranges + range];
      if (votes[other] > votes[majority]) majority = other;
    }
    AuditDifference difference{.range = range};
    for (int r = 0; r < ranks; ++r) {
      if (hashes[static_cast<size_t>(r) * ranges + range] != majority) difference.ranks.push_back(r);
    }
    return difference;
  }
  return std::nullopt;
}

void audit_ranges(ProcessGroup& group, const Timeout& wait, std::span<const AuditedRange> ranges) {
  std::vector<int64_t> hashes;
  for (const AuditedRange& range : ranges) hashes.push_back(static_cast<int64_t>(hash_bytes(range.bytes)));
  // Compare one combined hash first, because normally nothing differs.
  const int64_t all = static_cast<int64_t>(hash_bytes(std::as_bytes(std::span(hashes))));
  if (!first_difference(group.all_gather(std::span(&all, 1), wait), group.size())) return;

  const int64_t count = static_cast<int64_t>(ranges.size());
  const std::vector<int64_t> counts = group.all_gather(std::span(&count, 1), wait);
  require(std::ranges::count(counts, count) == group.size(), "ranks audit different numbers of parameters");
  const auto difference = first_difference(group.all_gather(hashes, wait), group.size());
  require(difference.has_value(), "the ranks' digests differ, but no parameter does");
  throw AgreedError(ExitCode::internal,
                    fmt::format("{} is not the same on every rank: {} differ{} from the others; the last checkpoint "
                                "before this step is the place to go back to",
                                ranges[difference->range].name, fold_ranks(difference->ranks, group.hosts()),
                                difference->ranks.size() == 1 ? "s" : ""));
}

}  // namespace lockstep
