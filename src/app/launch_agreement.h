// Detects ranks that mpirun or srun started with different arguments (several programs in one job, a wrapper, another
// host's environment), which must not continue as if all had rank 0's.
#pragma once

#include <optional>

#include "app/cli/command_line.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// Collective. Throws AgreedError(config), which names ranks and values, if any rank has a wrong command line, another
// subcommand, other arguments or another value of a setting in the environment. A setting that only rank 0's
// environment has is allowed: it applies to all ranks.
void agree_on_launch(ProcessGroup& group, const CommandLine& line, const std::optional<Error>& parse_error);

}  // namespace lockstep
