// The subcommands of `trainer`, one file each. Each returns the process's exit code or throws Error.
#pragma once

#include <atomic>

#include "app/cli/command_line.h"
#include "app/fatal.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/supervision/watchdog.h"

namespace lockstep {

// What main has ready for a subcommand that runs on all ranks.
struct CommandParts {
  const CommandLine& command;
  ProcessGroup& group;
  Watchdog& watchdog;
  FatalReport& fatal_report;
  const std::atomic<bool>& stop_requested;  // by a signal; train and benchmark alone look at it
};

// Collective: called by every rank.
int train_command(const CommandParts& parts);
int benchmark_command(const CommandParts& parts);
int check_command(const CommandParts& parts);
int evaluate_command(const CommandParts& parts);

// Without MPI.
int explain_command(const CommandLine& command);
int inspect_command(const CommandLine& command);
int export_command(const CommandLine& command);
int import_command(const CommandLine& command);
int pack_command(const CommandLine& command);

}  // namespace lockstep
