// Runs a launcher such as mpirun so that Ctrl-C, the end of the terminal and SIGTERM let the job save its state. mpirun
// itself answers them by killing its ranks within two seconds; it passes SIGUSR1 on.
//
// The command gets a session of its own, where no key reaches it. SIGINT, SIGTERM, SIGHUP and SIGUSR1 sent to this
// process become one SIGUSR1 to the command; its exit code is passed on.
#pragma once

#include <signal.h>

#include <span>
#include <string>

namespace lockstep {

struct LaunchOptions {
  const char* program;  // the name of this program, for messages
  // Whether the command is mpirun itself and nothing else. The first request is then delayed until the ranks can answer
  // it, a second Ctrl-C ends the job at once, and no process of the job is left behind.
  bool is_mpirun = false;
  int local_ranks = 0;               // number of ranks on this host; 0: unknown
  bool leaves_out_epilogue = false;  // reads the command's standard error, and leaves out the epilogue of mpirun 5
};

struct HeldSignals {
  sigset_t held, before;  // the signals that are blocked now, and those that were before
};

// Blocks the signals that are requests, so that none of them ends this process. Pending ones count from run_launched()
// on.
HeldSignals hold_signals();

// Runs `words` with these variables ("NAME=value") in addition to the environment, and returns the exit code.
int run_launched(const LaunchOptions& options, const HeldSignals& signals, std::span<const std::string> words,
                 std::span<const std::string> environment = {});

}  // namespace lockstep
