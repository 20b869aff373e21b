#include "comm/supervision/launcher_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

extern "C" {  // the header of glibc 2.36 lacks this declaration
#include <sys/pidfd.h>
}

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "lockstep/base/proc.h"

namespace lockstep {
namespace {

constexpr int kMillisecondsToExit = 5000;  // mpirun ends within one or two seconds after its last rank
constexpr int kMillisecondsToTerminate = 3000;

// The launchers of Open MPI 4 and 5. Slurm's slurmstepd is not among them, because Slurm terminates it itself.
constexpr std::array<std::string_view, 6> kLaunchers = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};

bool is_launcher(pid_t process) {
  const std::string name = read_system_file(fmt::format("/proc/{}/comm", process)).value_or("");
  return std::ranges::find(kLaunchers, std::string_view(name).substr(0, name.find('\n'))) != kLaunchers.end();
}

// `process` is a pidfd.
void end_unless_exited(int process, int milliseconds, int signal) {
  pollfd exit{.fd = process, .events = POLLIN, .revents = 0};
  if (::poll(&exit, 1, milliseconds) == 0) ::pidfd_send_signal(process, signal, nullptr, 0);
}

// Runs in the forked process. It makes only system calls, because another thread may have held any lock at the fork.
[[noreturn]] void watch(int process) {
  ::setsid();  // because the launcher kills the process groups of its ranks
  // The launcher also waits until its ranks' output pipes are closed, so this process must not keep them open.
  if (::dup2(process, STDIN_FILENO) < 0 || ::close_range(STDIN_FILENO + 1, ~0U, 0) != 0) ::_exit(1);
  end_unless_exited(STDIN_FILENO, kMillisecondsToExit, SIGTERM);
  end_unless_exited(STDIN_FILENO, kMillisecondsToTerminate, SIGKILL);
  ::_exit(0);
}

}  // namespace

void watch_launcher_end() noexcept {
  const pid_t parent = ::getppid();
  const int launcher = ::pidfd_open(parent, 0);
  if (launcher < 0) return;
  // The checks come after pidfd_open: if the process is still the parent, the name belongs to the process that the
  // pidfd refers to, and not to a later one with the same process id.
  if (is_launcher(parent) && ::getppid() == parent && ::_Fork() == 0) watch(launcher);
  ::close(launcher);
}

}  // namespace lockstep
