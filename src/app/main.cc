// The program: what exists, and what becomes of errors.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/end_job.h"
#include "app/passive_waiting.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/dist/agreement.h"
#include "lockstep/dist/launcher.h"
#include "lockstep/dist/mpi_session.h"
#include "lockstep/dist/process_group.h"
#include "lockstep/train/command_line.h"

namespace lockstep {
namespace {

// Runs a collective subcommand. An agreed error is printed once and ends every rank in the orderly way.
int run_collective(int argc, char** argv, const std::function<int(ProcessGroup&)>& command) {
  MpiSession session(argc, argv);
  int code = 0;
  try {
    ProcessGroup group(session);
    set_log_identity(group.rank(), group.size(), group.host());
    try {
      if (const auto mismatch = launcher_mismatch(group.size(), process_environment())) {
        throw AgreedError(ExitCode::config, *mismatch);
      }
      code = command(group);
    } catch (const AgreedError& error) {
      if (group.is_root()) log_error("{}", error.what());
      code = static_cast<int>(error.code());
    }
    log_repeated_warnings();
  } catch (...) {
    end_job();
  }
  session.finish();
  return code;
}

// A command line that is not understood is the same on every rank; under a launcher rank 0 alone says so.
int refuse_command_line(int argc, char** argv, const Error& error) {
  const auto claim = launch_claim(process_environment());
  if (!claim || claim->processes < 2) throw error;
  return run_collective(argc, argv,
                        [&](ProcessGroup&) -> int { throw AgreedError(error.code(), error.what(), error.where()); });
}

int run(int argc, char** argv) {
  CommandLine line;
  try {
    line = parse_command_line({argv + 1, argv + argc});
  } catch (const Error& error) {
    return refuse_command_line(argc, argv, error);
  }
  switch (line.command) {
    case Command::train:
      return run_collective(argc, argv, [&](auto& group) { return train_command(line, group); });
    case Command::evaluate:
      return run_collective(argc, argv, [&](auto& group) { return evaluate_command(line, group); });
    case Command::explain:
      return explain_command(line);
    case Command::inspect:
      return inspect_command(line);
    case Command::print:
      std::fputs(line.text.c_str(), stdout);
      return 0;
  }
  return static_cast<int>(ExitCode::internal);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  wait_passively(argv);
  ::signal(SIGXFSZ, SIG_IGN);  // a file over the limit of `ulimit -f` is a failed write, not the end of the process
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    log_error("{}", message_of(error));
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    log_error("{}", error.what());
    return static_cast<int>(ExitCode::internal);
  }
}
