// The roll call that opens every exchange of a ProcessGroup.
#pragma once

#include <string>
#include <string_view>

#include "dist/process_group_state.h"

namespace lockstep {

// Returns when all ranks of the group are here in the same `operation`. Otherwise marks the group as broken and throws
// on every rank that is here: Error(stalled) naming the missing ranks, or Error(internal) naming ranks that are in
// another operation.
//
// Each rank sends its operation's name to rank 0, which compares and answers; 2 (size - 1) small messages. Exchanges
// of host code are rare, so this costs nothing that counts, and a collective that hangs can never be asked who is
// missing.
void roll_call(ProcessGroupState& group, std::string_view operation, double seconds);

// Who does not wait, for the message about an operation that did not end in time. All ranks that wait for it come here
// at about the same time, as they began to wait. Afterwards the group may be broken.
std::string name_missing_ranks(ProcessGroupState& group, double seconds);

// "rank 3@node7"; without the host while that is not known yet.
std::string describe_rank(const ProcessGroupState& group, int rank);

}  // namespace lockstep
