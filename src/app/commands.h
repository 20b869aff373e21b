// The subcommands of `trainer`, one file each. Each returns the process's exit code or throws Error.
#pragma once

#include "lockstep/dist/process_group.h"
#include "lockstep/train/command_line.h"

namespace lockstep {

// Collective: called by every rank.
int train_command(const CommandLine& command, ProcessGroup& group);
int evaluate_command(const CommandLine& command, ProcessGroup& group);

// Without MPI.
int explain_command(const CommandLine& command);
int inspect_command(const CommandLine& command);

}  // namespace lockstep
