// lockstep-run COMMAND...: runs a launcher such as mpirun so that Ctrl-C, the end of the terminal and SIGTERM let the
// job save its state. mpirun itself answers them by killing its ranks within two seconds; it passes SIGUSR1 on.
//
// The command gets a session of its own, where no key reaches it. SIGINT, SIGTERM, SIGHUP and SIGUSR1 sent to this
// process become one SIGUSR1 to the command; its exit code is passed on.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>

namespace {

constexpr int kUsage = 2, kNotStarted = 127, kStopped = 75, kSignalBase = 128;
// A rank that has just been started has no signal handler yet and would die of the signal.
constexpr int64_t kYoungMilliseconds = 1000;

constexpr const char* kHelp = R"(Usage: lockstep-run COMMAND [ARGUMENT...]

    lockstep-run mpirun -np 4 trainer --config run.toml

Runs the command so that Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) ask every rank to save and stop; the exit code
is then 75, and the same command goes on where it stopped. A second request, five seconds later or more, ends the job at
once, without a save. Ctrl-Z suspends the job.
)";

int64_t now_milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

void say(const char* text) {
  std::fprintf(stderr, "lockstep-run: %s\n", text);
  std::fflush(stderr);
}

// Keeps signals ignored that nohup (SIGHUP) or a shell (the keys, for background jobs) has ignored. A signal that is
// blocked would be received in spite of being ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

[[noreturn]] void run_command(char** command, pid_t parent, const sigset_t& mask) {
  ::setsid();
  // A key that was pressed earlier is pending in this process, too. Ignoring the signal discards it.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP}) {
    if (is_ignored(signal)) continue;
    ::signal(signal, SIG_IGN);
    ::signal(signal, SIG_DFL);
  }
  // If this process is killed, the job saves and stops as well.
  ::prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (::getppid() != parent) ::_exit(kStopped);
  // The command may not read from the terminal, which belongs to the session of the shell. A pipe or a file may contain
  // the configuration.
  if (::isatty(STDIN_FILENO)) {
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0) ::_exit(kNotStarted);
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(command[0], command);
  std::fprintf(stderr, "lockstep-run: cannot run %s: %s\n", command[0], std::strerror(errno));
  ::_exit(kNotStarted);
}

// The state of the job as far as this process knows it.
class Job {
 public:
  Job(pid_t process, const sigset_t& signals) : process_(process), signals_(signals), started_(now_milliseconds()) {}

  // Waits for the end of the job and returns its exit code.
  int watch() {
    for (;;) {
      if (const auto code = ended()) return *code;
      handle(next_signal());
    }
  }

 private:
  int64_t young_for() const { return started_ + kYoungMilliseconds - now_milliseconds(); }

  // Returns a signal, or 0 when a delayed request is due.
  int next_signal() const {
    if (!held_back_) return ::sigwaitinfo(&signals_, nullptr);
    const int64_t left = young_for() > 0 ? young_for() : 0;
    const timespec limit{.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1'000'000};
    const int signal = ::sigtimedwait(&signals_, nullptr, &limit);
    return signal > 0 ? signal : 0;
  }

  void handle(int signal) {
    switch (signal) {
      case SIGINT:
      case SIGTERM:
      case SIGHUP:
      case SIGUSR1:
        ask();
        break;
      case SIGTSTP:
        ::kill(process_, SIGTSTP);  // mpirun suspends its ranks
        ::raise(SIGSTOP);
        ::kill(process_, SIGCONT);
        break;
      default:
        break;
    }
    if (held_back_ && young_for() <= 0) {
      held_back_ = false;
      ::kill(process_, SIGUSR1);
    }
  }

  void ask() {
    ++requests_;
    if (requests_ == 1) {
      say("the job is asked to save and stop; another request, after five seconds, ends it without a save");
    }
    if (young_for() > 0) {
      held_back_ = true;
    } else {
      ::kill(process_, SIGUSR1);
    }
  }

  std::optional<int> ended() const {
    int status = 0;
    if (::waitpid(process_, &status, WNOHANG) != process_) return std::nullopt;
    const int code = WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
    // A rank that dies of the only request had no handler yet. Nothing was trained, so nothing is lost.
    if (requests_ == 1 && code == kSignalBase + SIGUSR1) {
      say("stopped while the ranks were starting: nothing was trained");
      return kStopped;
    }
    return code;
  }

  const pid_t process_;
  const sigset_t signals_;
  const int64_t started_;
  int requests_ = 0;
  bool held_back_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) {
    std::fputs(kHelp, argc < 2 ? stderr : stdout);
    return argc < 2 ? kUsage : 0;
  }
  ::signal(SIGCHLD, SIG_DFL);  // otherwise the end of the command could not be detected if a parent ignored the signal
  sigset_t signals, before;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP, SIGCHLD}) {
    if (!is_ignored(signal)) ::sigaddset(&signals, signal);
  }
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t parent = ::getpid();
  const pid_t job = ::fork();
  if (job < 0) {
    std::fprintf(stderr, "lockstep-run: cannot start a process: %s\n", std::strerror(errno));
    return kNotStarted;
  }
  if (job == 0) run_command(argv + 1, parent, before);
  return Job(job, signals).watch();
}
