// lockstep-run COMMAND...: runs any launcher so that Ctrl-C saves.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "app/launcher/launched_job.h"
#include "lockstep/base/error.h"

namespace {

constexpr const char* kHelp = R"(Usage: lockstep-run COMMAND [ARGUMENT...]

    lockstep-run srun --mpi=pmix trainer --config run.toml

Runs the command so that Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) ask every rank to save and stop; the exit code
is then 75, and the same command goes on where it stopped. A second request, five seconds later or more, ends the job at
once, without a save. Ctrl-Z suspends the job. `lockstep run` also chooses the options of mpirun.
)";

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) {
    std::fputs(kHelp, argc < 2 ? stderr : stdout);
    return argc < 2 ? static_cast<int>(lockstep::ExitCode::config) : 0;
  }
  return lockstep::run_launched({.program = "lockstep-run"}, lockstep::hold_signals(),
                                std::vector<std::string>(argv + 1, argv + argc));
}
