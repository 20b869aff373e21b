// The roll call that opens every exchange of a ProcessGroup.
#pragma once

#include <string>
#include <string_view>

#include "comm/group/process_group_state.h"

namespace lockstep {

// Collective. Returns when all ranks of the group have entered the same `operation`; the result is the operation's
// number on the progress board, or 0 without a board. Otherwise marks the group as broken and throws on every rank that
// arrived: Error(stalled) naming the missing ranks, or Error(internal) naming the ranks that are in another operation.
//
// Each rank sends the name of its operation to rank 0, which compares the names and replies: 2 (size - 1) small
// messages. Host-side exchanges are rare, so the cost is negligible. A hanging MPI collective, in contrast, cannot tell
// which rank is missing.
int64_t roll_call(ProcessGroupState& group, std::string_view operation, double seconds);

// Returns what the progress board knows about the ranks for which this rank waits: "; rank 2@node7 has not arrived
// (...)". Empty without a board. First sleeps for 0.6 s, so that the latest heartbeats are included.
std::string who_is_behind(const ProcessGroupState& group);

// Returns "rank 3@node7", or "rank 3" while the hosts are not known yet.
std::string describe_rank(const ProcessGroupState& group, int rank);

}  // namespace lockstep
