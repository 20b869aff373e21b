// Compares state between ranks by hash, to detect replicas whose parameters have diverged and to name the parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// A 64-bit hash of `bytes`. Equal contents give equal hashes on all machines with the same byte order. The hash is fast
// (several bytes per cycle) and not cryptographic.
uint64_t hash_bytes(std::span<const std::byte> bytes);

// A named piece of memory to compare between ranks.
struct AuditedRange {
  std::string_view name;
  std::span<const std::byte> bytes;
};

struct AuditDifference {
  size_t range = 0;        // index of the range
  std::vector<int> ranks;  // ranks that differ from the majority, or from rank 0 if there is no majority
};

// Returns the first range whose hashes are not equal on all ranks, or nothing. `hashes` has shape [ranks, ranges].
std::optional<AuditDifference> first_difference(std::span<const int64_t> hashes, int ranks);

// Collective. Throws AgreedError(internal), which names the first differing range and its ranks, unless all contents
// are bit-identical on every rank. Every rank passes the same ranges in the same order.
void audit_ranges(ProcessGroup& group, const Timeout& wait, std::span<const AuditedRange> ranges);

}  // namespace lockstep
