// Comparing state over ranks: replicas that have drifted apart are found by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// 64 bits of a range's contents: equal contents give equal hashes on every machine of one byte order. Not
// cryptographic; several bytes a cycle.
uint64_t hash_bytes(std::span<const std::byte> bytes);

struct AuditedRange {
  std::string_view name;
  std::span<const std::byte> bytes;
};

struct AuditDifference {
  size_t range = 0;
  std::vector<int> ranks;  // that differ from most others (from rank 0's side when there is no majority)
};

// The first range whose hashes are not equal on all ranks; `hashes` is [ranks, ranges].
std::optional<AuditDifference> first_difference(std::span<const int64_t> hashes, int ranks);

// Collective. Throws AgreedError(internal), naming the first range that differs and the ranks, when contents are not
// the same bits on every rank. Every rank gives the same ranges in the same order.
void audit_ranges(ProcessGroup& group, const Timeout& wait, std::span<const AuditedRange> ranges);

}  // namespace lockstep
