// The roll call that opens every exchange of a ProcessGroup.
#pragma once

#include <string>
#include <string_view>

#include "comm/group/process_group_state.h"

namespace lockstep {

// Returns when all ranks of the group are here in the same `operation`; its number on the board, if there is one.
// Otherwise marks the group as broken and throws
// on every rank that is here: Error(stalled) naming the missing ranks, or Error(internal) naming ranks that are in
// another operation.
//
// Each rank sends its operation's name to rank 0, which compares and answers; 2 (size - 1) small messages. Exchanges
// of host code are rare, so this costs nothing that counts, and a collective that hangs can never be asked who is
// missing.
int64_t roll_call(ProcessGroupState& group, std::string_view operation, double seconds);

// "; 'sum for a count': rank 2@node7 has not arrived (...)" of a rank that waits: what the board knows. Takes a moment,
// so that the latest heartbeats are in it.
std::string who_is_behind(const ProcessGroupState& group);

// "rank 3@node7"; without the host while that is not known yet.
std::string describe_rank(const ProcessGroupState& group, int rank);

}  // namespace lockstep
