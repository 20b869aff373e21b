#include "comm/supervision/launcher_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

extern "C" {  // the header of glibc 2.36 lacks this declaration
#include <sys/pidfd.h>
}

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

constexpr int kMillisecondsToExit = 5000;
constexpr int kMillisecondsToTerminate = 3000;

// The launchers of Open MPI 4 and 5. Slurm's slurmstepd is not among them, because Slurm terminates it itself.
constexpr std::array<std::string_view, 6> kLaunchers = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};

bool is_launcher(pid_t process) {
  std::array<char, 32> path{};  // zero-initialized, so that the text is terminated
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/{}/comm", process);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 32> name{};
  const ssize_t bytes = ::read(file, name.data(), name.size());
  ::close(file);
  const std::string_view line(name.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  return std::ranges::find(kLaunchers, line.substr(0, line.find('\n'))) != kLaunchers.end();
}

// `process` is a pidfd.
bool exits_within(int process, int milliseconds) {
  pollfd event{.fd = process, .events = POLLIN, .revents = 0};
  return ::poll(&event, 1, milliseconds) != 0;
}

// Runs in the forked process. It makes only system calls, because another thread may have held any lock at the fork.
[[noreturn]] void watch(int process) {
  ::setsid();  // because the launcher kills the process groups of its ranks
  // The launcher also waits until its ranks' output pipes are closed, so this process must not keep them open.
  if (::dup2(process, STDIN_FILENO) < 0 || ::close_range(STDIN_FILENO + 1, ~0U, 0) != 0) ::_exit(1);
  if (!exits_within(STDIN_FILENO, kMillisecondsToExit)) ::pidfd_send_signal(STDIN_FILENO, SIGTERM, nullptr, 0);
  if (!exits_within(STDIN_FILENO, kMillisecondsToTerminate)) ::pidfd_send_signal(STDIN_FILENO, SIGKILL, nullptr, 0);
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
