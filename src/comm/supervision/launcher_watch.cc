#include "comm/supervision/launcher_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

extern "C" {  // glibc 2.36 does not say so itself
#include <sys/pidfd.h>
}

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

constexpr int kMillisecondsToEnd = 5000;
constexpr int kMillisecondsToTerminate = 3000;

// Of Open MPI 4 and 5. Slurm's slurmstepd is none of them: Slurm ends it.
constexpr std::array<std::string_view, 6> kLaunchers = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};

bool is_launcher(pid_t process) {
  std::array<char, 32> path{};  // zeros end the text
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/{}/comm", process);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 32> name{};
  const ssize_t bytes = ::read(file, name.data(), name.size());
  ::close(file);
  const std::string_view line(name.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  return std::ranges::find(kLaunchers, line.substr(0, line.find('\n'))) != kLaunchers.end();
}

bool ends_within(int process, int milliseconds) {
  pollfd end{.fd = process, .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, milliseconds) != 0;
}

// In the process left behind: system calls alone, since other threads may have held any lock.
[[noreturn]] void watch(int process) {
  ::setsid();  // the launcher ends the process groups of its ranks
  // It also waits for the ends of their output.
  if (::dup2(process, STDIN_FILENO) < 0 || ::close_range(STDIN_FILENO + 1, ~0U, 0) != 0) ::_exit(1);
  if (!ends_within(STDIN_FILENO, kMillisecondsToEnd)) ::pidfd_send_signal(STDIN_FILENO, SIGTERM, nullptr, 0);
  if (!ends_within(STDIN_FILENO, kMillisecondsToTerminate)) ::pidfd_send_signal(STDIN_FILENO, SIGKILL, nullptr, 0);
  ::_exit(0);
}

}  // namespace

void watch_launcher_end() noexcept {
  const pid_t parent = ::getppid();
  const int launcher = ::pidfd_open(parent, 0);
  if (launcher < 0) return;
  // Asked after it is held, and still the parent: the name is that of the process held.
  if (is_launcher(parent) && ::getppid() == parent && ::_Fork() == 0) watch(launcher);
  ::close(launcher);
}

}  // namespace lockstep
