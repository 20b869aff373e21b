// The subcommands of `trainer`, one file each. Each returns the process's exit code or throws Error.
#pragma once

#include "app/cli/command_line.h"
#include "app/job.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/supervision/watchdog.h"
#include "lockstep/config/config.h"

namespace lockstep {

// Collective.
int train_command(const Configured& configured, ProcessGroup& group, Watchdog& watchdog);
int benchmark_command(const CommandLine& command, Config config, ProcessGroup& group, Watchdog& watchdog);
int check_command(const Config& config, ProcessGroup& group, Watchdog& watchdog);
int evaluate_command(const CommandLine& command, const Config& config, ProcessGroup& group, Watchdog& watchdog);
int profile_command(const CommandLine& command, const Config& config, ProcessGroup& group, Watchdog& watchdog);
int predict_command(const CommandLine& command, Config config, ProcessGroup& group, Watchdog& watchdog);

// These do not use MPI.
int explain_command(const CommandLine& command);
int dump_config_command(const CommandLine& command);
int inspect_command(const CommandLine& command);
int export_command(const CommandLine& command);
int import_command(const CommandLine& command);
int pack_command(const CommandLine& command);

}  // namespace lockstep
