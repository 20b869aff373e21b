#include "app/cli/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/proc.h"

namespace lockstep {
namespace {

// Returns the destination of the output that counts: that of mpirun, even if a script or profiler runs the rank,
// otherwise that of this process. Open MPI sets its variable for every process between mpirun and the rank.
std::string destination(int descriptor) {
  int process = ::getpid();
  while (process > 1 && process_variable(fmt::format("/proc/{}", process), "OMPI_COMM_WORLD_RANK")) {
    process = process_status(fmt::format("/proc/{}", process)).value_or(ProcessStatus{}).parent;
  }
  return fmt::format("/proc/{}/fd/{}", process, descriptor);
}

}  // namespace

bool output_is_terminal(int descriptor) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(destination(descriptor), error).string();
  return !error && (target.starts_with("/dev/pts/") || target.starts_with("/dev/tty"));
}

std::FILE* take_standard_output() {
  static std::FILE* const results = [] {
    std::FILE* const file = ::fdopen(::dup(STDOUT_FILENO), "w");
    if (!file || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
      fail(ExitCode::internal, "standard output: {}", std::strerror(errno));
    }
    return file;
  }();
  return results;
}

int terminal_columns() {
  constexpr int kUsual = 100;
  const int terminal = ::open(destination(STDOUT_FILENO).c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) return kUsual;
  winsize size{};
  const bool known = ::ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  ::close(terminal);
  return known ? size.ws_col : kUsual;
}

bool moves_cursor(const EnvironmentLookup& environment) {
  const std::string terminal = environment("TERM").value_or("");
  return !terminal.empty() && terminal != "dumb";
}

bool takes_colors(const EnvironmentLookup& environment) {
  return environment("NO_COLOR").value_or("").empty() && moves_cursor(environment);
}

}  // namespace lockstep
