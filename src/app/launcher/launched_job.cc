#include "app/launcher/launched_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "app/launcher/epilogue.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/proc.h"

namespace lockstep {
namespace {

constexpr int kNotStarted = 127, kStopped = static_cast<int>(ExitCode::stopped), kSignalBase = 128;
// A rank that has just been started has no signal handler yet and would die of the signal.
constexpr int64_t kYoungMilliseconds = 1000;
constexpr int64_t kLongestStartMilliseconds = 10'000;  // then a request is passed on whether or not ranks were seen
// Until then, another request is the same one: a key that bounces or is held down, a signal to several processes.
constexpr int64_t kSameKeyMilliseconds = 1000, kSameSignalMilliseconds = 5000;
constexpr int64_t kEndMilliseconds = 5000;  // mpirun ends within two seconds after SIGTERM
constexpr int64_t kLeftMilliseconds = 2000;
constexpr std::chrono::milliseconds kPause{20};

int64_t now_milliseconds() { return static_cast<int64_t>(monotonic_seconds() * 1000); }

// Keeps signals ignored that nohup (SIGHUP) or a shell (the keys, for background jobs) has ignored. A signal that is
// blocked would be received in spite of being ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

std::string status_of(pid_t process) { return read_system_file(fmt::format("/proc/{}/status", process)).value_or(""); }

// Returns whether a set of signals, such as "SigCgt" (caught), in the status of a process contains this one.
bool has_signal(const std::string& status, const char* set, int signal) {
  const std::string_view text = system_field(status, set);
  uint64_t bits = 0;
  std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  return bits >> (signal - 1) & 1;
}

// Returns the processes on this host that the job has started, the first one included.
std::vector<pid_t> processes_of(pid_t session) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto process = parse_number<pid_t>(entry.path().filename().string());
    if (process && ::getsid(*process) == session) found.push_back(*process);
  }
  return found;
}

// Returns whether a process is a rank that survives SIGUSR1: the trainer holds the signal from its first lines of code
// on. Subcommands that do not train let the signal end them; they have threads as soon as MPI starts.
bool is_ready_rank(pid_t process) {
  const std::string status = status_of(process);
  const bool holds = has_signal(status, "SigBlk", SIGUSR1) || has_signal(status, "SigCgt", SIGUSR1);
  return (holds || system_field(status, "Threads") != "1") &&
         process_variable(fmt::format("/proc/{}", process), "OMPI_COMM_WORLD_RANK").has_value();
}

// The standard error of a command, which a thread reads and passes on without the epilogue. It is a terminal if this
// process has one, because the ranks test for that.
class FilteredError {
 public:
  FilteredError() {
    int ends[2];
    termios raw{};
    const bool terminal = ::isatty(STDERR_FILENO) && ::openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) == 0;
    if (!terminal && ::pipe(ends) != 0) return;
    if (terminal && ::tcgetattr(ends[1], &raw) == 0) {
      ::cfmakeraw(&raw);
      ::tcsetattr(ends[1], TCSANOW, &raw);
    }
    read_ = ends[0];
    write_ = ends[1];
  }
  FilteredError(const FilteredError&) = delete;
  FilteredError& operator=(const FilteredError&) = delete;
  ~FilteredError() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    if (read_ >= 0) ::close(read_);
  }

  // Called in the new process, which then writes there.
  void take() const {
    if (write_ < 0) return;
    ::dup2(write_, STDERR_FILENO);
    ::close(write_);
    ::close(read_);
  }

  // Called in this process once the other one exists.
  void start() {
    if (write_ < 0) return;
    ::close(write_);
    thread_ = std::thread([this] { pass_on(); });
  }

 private:
  // A process that the job has left behind may hold the other end open, so the end of the job ends this as well.
  void pass_on() {
    EpilogueFilter filter;
    char text[4096];
    for (;;) {
      pollfd readable{.fd = read_, .events = POLLIN, .revents = 0};
      const bool last = ended_;
      const int found = ::poll(&readable, 1, static_cast<int>(kPause.count()));
      if (found <= 0 && !last) continue;
      const ssize_t bytes = found > 0 ? ::read(read_, text, sizeof text) : 0;
      if (bytes <= 0) break;
      write_out(filter.pass({text, static_cast<size_t>(bytes)}));
    }
    write_out(filter.rest());
  }

  static void write_out(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }

  int read_ = -1, write_ = -1;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

[[noreturn]] void execute(std::span<const std::string> words, std::span<const std::string> environment,
                          const char* program, pid_t parent, const sigset_t& mask) {
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
  for (const std::string& variable : environment) {
    const size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "%s: cannot run %s: %s\n", program, arguments[0], std::strerror(errno));
  ::_exit(kNotStarted);
}

// The state of the job that this process knows.
class Job {
 public:
  // `error` ends with the job.
  Job(pid_t process, const LaunchOptions& options, const sigset_t& signals, std::optional<FilteredError>& error)
      : process_(process), options_(options), signals_(signals), error_(error), started_(now_milliseconds()) {}

  // Waits for the end of the job and returns its exit code.
  int watch() {
    for (;;) {
      if (const auto code = ended()) return *code;
      handle(next_signal());
      pass_on_if_ready();
      kill_if_late();
    }
  }

 private:
  void say(const std::string& text) const {
    std::fprintf(stderr, "%s: %s\n", options_.program, text.c_str());
    std::fflush(stderr);
  }

  // Whether the command would answer a request. mpirun has no handler for it at the very beginning and end.
  bool is_ready() const {
    const int64_t age = now_milliseconds() - started_;
    if (!options_.is_mpirun) return age >= kYoungMilliseconds;
    if (!has_signal(status_of(process_), "SigCgt", SIGUSR1)) return false;
    if (age >= kLongestStartMilliseconds) return true;
    if (options_.local_ranks == 0 && age < kYoungMilliseconds) return false;
    return std::ranges::count_if(processes_of(process_), is_ready_rank) >= std::max(options_.local_ranks, 1);
  }

  // Returns a signal, or 0 after a short time while there is something to wait for.
  int next_signal() const {
    if (!held_back_ && end_signal_ == 0) return ::sigwaitinfo(&signals_, nullptr);
    const timespec limit{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kPause).count()};
    const int signal = ::sigtimedwait(&signals_, nullptr, &limit);
    return signal > 0 ? signal : 0;
  }

  void handle(int signal) {
    switch (signal) {
      case SIGINT:
      case SIGTERM:
      case SIGHUP:
      case SIGUSR1:
        request(signal);
        break;
      case SIGTSTP:
        ::kill(process_, SIGTSTP);  // mpirun suspends its ranks
        ::raise(SIGSTOP);
        ::kill(process_, SIGCONT);
        break;
      default:
        break;
    }
  }

  void request(int signal) {
    const int64_t now = now_milliseconds();
    if (requested_ == 0) {
      requested_ = now;
      held_back_ = true;
      say(options_.is_mpirun ? "the job is asked to save and stop; Ctrl-C again ends it at once, without a save"
                             : "the job is asked to save and stop; another request, after five seconds, ends it "
                               "without a save");
      return;
    }
    if (!options_.is_mpirun) {
      repeated_ = held_back_ = true;
      return;
    }
    if (now - requested_ < (signal == SIGINT ? kSameKeyMilliseconds : kSameSignalMilliseconds)) return;
    if (end_signal_ != 0) return kill_all();
    end_signal_ = signal;
    end_by_ = now + kEndMilliseconds;
    held_back_ = false;
    say("the job ends at once, without a save");
    ::kill(process_, SIGCONT);
    ::kill(process_, SIGTERM);
  }

  void pass_on_if_ready() {
    if (!held_back_ || !is_ready()) return;
    held_back_ = false;
    ::kill(process_, SIGUSR1);
  }

  void kill_if_late() {
    if (end_signal_ != 0 && now_milliseconds() >= end_by_) kill_all();
  }

  void kill_all() const {
    for (const pid_t process : processes_of(process_)) ::kill(process, SIGKILL);
  }

  // Ends the processes that mpirun has left behind on this host.
  void clean_up() const {
    const int64_t end = now_milliseconds() + kLeftMilliseconds;
    while (now_milliseconds() < end) {
      if (processes_of(process_).empty()) return;
      std::this_thread::sleep_for(kPause);
    }
    const size_t left = processes_of(process_).size();
    if (left > 0) say(fmt::format("mpirun has ended without {} of its processes; they are killed", left));
    kill_all();
  }

  std::optional<int> ended() const {
    int status = 0;
    if (::waitpid(process_, &status, WNOHANG) != process_) return std::nullopt;
    const int code = WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
    if (options_.is_mpirun) clean_up();
    error_.reset();  // what the job has printed comes before what is said of its end
    if (end_signal_ != 0) return code == 0 || code == kStopped ? code : kSignalBase + end_signal_;
    if (options_.is_mpirun && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1) {
      say("mpirun was ending when the request came; what the job has printed is its result");
      return kStopped;
    }
    // A rank that dies of the only request had no handler yet. Nothing was trained, so nothing is lost.
    if (requested_ != 0 && !repeated_ && code == kSignalBase + SIGUSR1) {
      say("stopped while the ranks were starting: nothing was trained");
      return kStopped;
    }
    if (options_.is_mpirun) explain(code);
    return code;
  }

  // A quiet mpirun also hides why it could not start the job, and that a process was killed.
  void explain(int code) const {
    if (code > kSignalBase && ::sigabbrev_np(code - kSignalBase)) {
      say(fmt::format("exit code {}: a process was killed by SIG{}{}", code, ::sigabbrev_np(code - kSignalBase),
                      code - kSignalBase == SIGKILL ? "; if the system did it for lack of memory, dmesg says so" : ""));
    } else if (code == 1 || (code > 6 && code != kStopped && code != kNotStarted)) {
      say(fmt::format("exit code {}: if no line above says why, OMPI_MCA_orte_execute_quiet=0 makes mpirun do so",
                      code));
    }
  }

  const pid_t process_;
  const LaunchOptions options_;
  const sigset_t signals_;
  std::optional<FilteredError>& error_;
  const int64_t started_;
  int64_t requested_ = 0;   // when the first request came; 0: none yet
  bool held_back_ = false;  // a request waits until the job is ready for it
  bool repeated_ = false;
  int end_signal_ = 0;  // the signal that is to end the job at once
  int64_t end_by_ = 0;
};

}  // namespace

HeldSignals hold_signals() {
  ::signal(SIGCHLD, SIG_DFL);  // otherwise the end of the command could not be detected if a parent ignored the signal
  HeldSignals signals{};
  ::sigemptyset(&signals.held);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP, SIGCHLD}) {
    if (!is_ignored(signal)) ::sigaddset(&signals.held, signal);
  }
  ::sigprocmask(SIG_BLOCK, &signals.held, &signals.before);
  return signals;
}

int run_launched(const LaunchOptions& options, const HeldSignals& signals, std::span<const std::string> words,
                 std::span<const std::string> environment) {
  const pid_t parent = ::getpid();
  std::optional<FilteredError> error;
  if (options.leaves_out_epilogue) error.emplace();
  const pid_t job = ::fork();
  if (job < 0) {
    std::fprintf(stderr, "%s: cannot start a process: %s\n", options.program, std::strerror(errno));
    return kNotStarted;
  }
  if (job == 0) {
    if (error) error->take();
    execute(words, environment, options.program, parent, signals.before);
  }
  if (error) error->start();
  return Job(job, options, signals.held, error).watch();
}

}  // namespace lockstep
