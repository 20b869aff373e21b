// The program: its subcommands and the handling of errors.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include "app/cli/command_line.h"
#include "app/cli/terminal.h"
#include "app/commands.h"
#include "app/fatal.h"
#include "app/job.h"
#include "app/launch_agreement.h"
#include "app/passive_waiting.h"
#include "app/stop_signals.h"
#include "app/version.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/thread_name.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/mpi_session.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/supervision/heartbeats.h"
#include "lockstep/comm/supervision/launcher.h"
#include "lockstep/comm/transport/nccl_communicator.h"
#include "lockstep/io/file_thread.h"
#include "lockstep/train/deadlines.h"

namespace lockstep {
namespace {

struct Arguments {
  int& argc;
  char**& argv;
};

// Called before MPI starts. A single process in a step of srun runs alone, as it would outside of Slurm. If there are
// several processes without a common MPI job, all end, and the first reports it.
void settle_slurm_step() {
  const EnvironmentLookup environment = process_environment();
  if (!alone_in_slurm_step(environment)) return;
  if (const auto mismatch = launcher_mismatch(1, environment)) {
    if (environment("SLURM_PROCID").value_or("0") != "0") std::exit(static_cast<int>(ExitCode::config));
    fail(ExitCode::config, "{}", *mismatch);
  }
  ::unsetenv("SLURM_STEP_ID");
}

// Runs a collective subcommand. An agreed error is printed once, and all ranks finalize MPI.
int run_collective(const Arguments& arguments, const CommandLine& line, const std::optional<Error>& parse_error) {
  // Signals are handled before MPI starts, so that a request during its start, which takes a second, is not lost.
  std::optional<StopSignals> signals;
  if (line.command == Command::train || line.command == Command::benchmark || line.command == Command::profile) {
    signals.emplace();
  } else {
    release_stop_signals();
  }
  if (line.command == Command::predict) take_standard_output();
  const Config early = configuration_before_start(line.overrides, process_environment());
  Watchdog watchdog(watchdog_options(watchdog_limits(early)));
  FatalReport fatal_report(watchdog.board());
  set_fatal_report(&fatal_report);
  int code = 0;
  try {
    MpiSession session(arguments.argc, arguments.argv, early.comm.watch_launcher);
    Heartbeats heartbeats(session, watchdog.board());
    ProcessGroup group(session, {.board = &watchdog.board()});
    set_log_identity(group.rank(), group.size(), group.host());
    watchdog.progress(RunPhase::config, 0);
    try {
      if (const auto mismatch = launcher_mismatch(group.size(), process_environment())) {
        throw AgreedError(ExitCode::config, *mismatch);
      }
      agree_on_launch(group, line, parse_error);
      const Configured configured = configure(line, group, watchdog, fatal_report);
      const Config& config = configured.config;
      code = line.command == Command::check       ? check_command(config, group, watchdog)
             : line.command == Command::evaluate  ? evaluate_command(line, config, group, watchdog)
             : line.command == Command::predict   ? predict_command(line, config, group, watchdog)
             : line.command == Command::profile   ? profile_command(line, config, group, watchdog)
             : line.command == Command::benchmark ? benchmark_command(line, config, group, watchdog)
                                                  : train_command(configured, group, watchdog);
    } catch (const AgreedError& error) {
      const bool stopped = error.code() == ExitCode::stopped;
      if (group.is_root()) log_line(stopped ? LogLevel::info : LogLevel::error, error.what());
      code = static_cast<int>(error.code());
    } catch (...) {
      abort_on_exception();  // before ~Heartbeats, which would wait for a stalled rank
    }
    log_repeated_warnings();
    // Returning from main would wait for a thread that is blocked by a disk, so the job is aborted instead.
    if (FileThread::left_behind() > 0) abort_job(code == 0 ? static_cast<int>(ExitCode::checkpoint) : code);
    session.finish();
  } catch (...) {
    abort_on_exception();
  }
  set_fatal_report(nullptr);
  // A thread that is still inside NCCL must not meet the destructors that run when main returns.
  if (NcclCommunicator::left_behind() > 0) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}

int run(int argc, char** argv) {
  CommandLine line;
  std::optional<Error> parse_error;
  try {
    line = parse_command_line({argv + 1, argv + argc});
  } catch (const Error& error) {
    // Under a launcher, only one rank reports it.
    const auto claim = launch_claim(process_environment());
    if (!claim || claim->processes < 2) throw;
    parse_error = error;
  }
  const bool collective = line.command == Command::train || line.command == Command::benchmark ||
                          line.command == Command::evaluate || line.command == Command::predict ||
                          line.command == Command::check || line.command == Command::profile;
  if (!collective) release_stop_signals();
  switch (line.command) {
    case Command::train:
    case Command::benchmark:
    case Command::evaluate:
    case Command::predict:
    case Command::profile:
    case Command::check:
      settle_slurm_step();
      return run_collective({argc, argv}, line, parse_error);
    case Command::explain:
      return explain_command(line);
    case Command::dump_config:
      return dump_config_command(line);
    case Command::inspect:
      return inspect_command(line);
    case Command::export_weights:
      return export_command(line);
    case Command::import_weights:
      return import_command(line);
    case Command::pack:
      return pack_command(line);
    case Command::version:
      std::fputs(version_text().c_str(), stdout);
      return 0;
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
  hold_stop_signals();
  wait_passively(argv);
  name_thread("trainer");  // after the exec in wait_passively() it would be "exe"
  set_log_colors(takes_colors(process_environment()) && output_is_terminal(STDERR_FILENO));
  ::signal(SIGXFSZ, SIG_IGN);  // so that exceeding `ulimit -f` is a failed write and does not end the process
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
