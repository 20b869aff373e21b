// The roll call that opens every exchange of a ProcessGroup.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/group/process_group_state.h"

namespace lockstep {

// Collective. Returns when all ranks of the group have entered the same `operation`; the result is the operation's
// number on the progress board, or 0 without a board. Otherwise marks the group as broken and throws on every rank that
// arrived: Error(stalled), with a board naming the missing ranks, or Error(internal) naming the ranks that are in
// another operation.
//
// It is an all-reduce of two numbers, so no rank talks to more than log2(size) others. An all-reduce that does not end
// cannot tell which rank is missing; the heartbeats can.
int64_t roll_call(ProcessGroupState& group, std::string_view operation, double seconds);

// A digest of `text` and its negative. The maximum of both over all ranks says whether all texts are the same.
using TextRange = std::array<int64_t, 2>;
TextRange text_range(std::string_view text);
inline bool same_text(const TextRange& largest) { return largest[0] == -largest[1]; }

// Returns what the progress board knows about the ranks for which this rank waits: "; rank 2@node7 has not arrived
// (...)". Empty without a board. First sleeps for 0.6 s, in
// large jobs for 5 s, so that the latest heartbeats are included.
std::string who_is_behind(const ProcessGroupState& group);

// Returns "rank 3@node7", or "rank 3" while the hosts are not known yet.
std::string describe_rank(const ProcessGroupState& group, int rank);

}  // namespace lockstep
