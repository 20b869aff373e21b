// Ranks that mpirun or srun started with different arguments (several programs in one job, a wrapper, another host's
// environment) must not go on as if all had rank 0's.
#pragma once

#include <optional>

#include "app/cli/command_line.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// A wrong command line on any rank, another subcommand, other arguments or another value of a setting in the
// environment end all of them. A setting that only rank 0's environment has is fine: it counts for all. Collective;
// throws AgreedError(config) naming ranks and values.
void agree_on_launch(ProcessGroup& group, const CommandLine& line, const std::optional<Error>& parse_error);

}  // namespace lockstep
