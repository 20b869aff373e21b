#include "app/cli/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep {
namespace {

// Open MPI sets this variable for each rank, and so for every process between mpirun and the rank.
constexpr const char* kRankVariable = "OMPI_COMM_WORLD_RANK=";

bool was_launched(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  for (std::string variable; std::getline(file, variable, '\0');) {
    if (variable.starts_with(kRankVariable)) return true;
  }
  return false;
}

pid_t parent_of(pid_t process) {
  pid_t parent = 0;
  std::string word;
  for (std::ifstream file(fmt::format("/proc/{}/status", process)); file >> word;) {
    if (word == "PPid:") file >> parent;
  }
  return parent;
}

// Returns the process whose output counts: mpirun, above a script or profiler around the rank, or else this process.
pid_t shown_by() {
  pid_t process = ::getpid();
  while (process > 1 && was_launched(process)) process = parent_of(process);
  return process;
}

std::string destination(int descriptor) { return fmt::format("/proc/{}/fd/{}", shown_by(), descriptor); }

}  // namespace

bool output_is_terminal(int descriptor) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(destination(descriptor), error).string();
  return !error && (target.starts_with("/dev/pts/") || target.starts_with("/dev/tty"));
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
