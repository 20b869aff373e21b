#include "lockstep/base/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

struct Identity {
  int rank = 0;
  std::string prefix;  // of warnings and errors
};

// The log is process-wide state, like the C library's stdout.
struct LogState {
  std::mutex mutex;
  std::list<Identity> identities{1};  // never removed, since a fatal report is written without the lock
  std::atomic<const Identity*> identity{&identities.back()};
  std::atomic<bool> colored{false};
  std::atomic<bool> timed{false};
  std::atomic<LogLevel> least{LogLevel::info};
  std::string status;
  std::map<std::string, int, std::less<>> warnings;
};

LogState& state() {
  static LogState* instance = new LogState;  // never destroyed: threads may log while statics are destroyed
  return *instance;
}

constexpr std::chrono::milliseconds kLongestWait{500};  // for the lock, in urgent messages
constexpr std::string_view kEraseLine = "\r\x1b[K";

// Locks the log, or returns without the lock after kLongestWait. Polls, because GCC's thread sanitizer does not support
// waiting for a lock with a time limit.
std::unique_lock<std::mutex> lock_if_free(LogState& log) {
  constexpr std::chrono::milliseconds kPause{1};
  const auto end = std::chrono::steady_clock::now() + kLongestWait;
  std::unique_lock lock(log.mutex, std::try_to_lock);
  while (!lock && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    if (lock.try_lock()) break;
  }
  return lock;
}

// Returns "warning: " or "error: ". May be called in a signal handler.
const char* label(LogLevel level, bool colored) {
  if (level == LogLevel::warning) return colored ? "\x1b[33mwarning:\x1b[0m " : "warning: ";  // yellow
  return colored ? "\x1b[31merror:\x1b[0m " : "error: ";                                      // red
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return;  // there is nowhere left to report an error
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Like write_all(), but gives up if nobody reads the other end.
void write_if_taken(int fd, std::string_view text) {
  constexpr int kPatience_ms = 2000;
  constexpr size_t kPiece = 4096;  // a pipe that is ready accepts so many bytes without blocking
  while (!text.empty()) {
    pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
    const int polled = ::poll(&ready, 1, kPatience_ms);
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return;
    const ssize_t written = ::write(fd, text.data(), std::min(text.size(), kPiece));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

std::string time_prefix(const LogState& log) { return log.timed ? log_timestamp_now() + ": " : std::string(); }

// Prints the text with everything escaped that would act on a terminal, because it may quote foreign text.
void emit(LogState& log, LogLevel level, std::string_view text) {
  std::string line = time_prefix(log);
  if (level != LogLevel::info) {
    line += log.identity.load()->prefix;
    line += label(level, log.colored);
  }
  line += printable_lines(text);
  line += '\n';
  if (!log.status.empty()) write_all(STDOUT_FILENO, kEraseLine);
  write_all(level == LogLevel::info ? STDOUT_FILENO : STDERR_FILENO, line);
  write_all(STDOUT_FILENO, log.status);
}

}  // namespace

void set_log_identity(int rank, int size, std::string host) {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  log.identities.push_back({rank, size > 1 ? fmt::format("rank {}@{}: ", rank, printable(host)) : std::string()});
  log.identity = &log.identities.back();
}

void set_log_colors(bool colored) { state().colored = colored; }

void set_log_style(LogLevel least, bool time) {
  state().least = least;
  state().timed = time;
}

bool log_has_time() { return state().timed; }

int log_rank() { return state().identity.load()->rank; }

void log_line(LogLevel level, std::string_view text) {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  if (level < log.least || (level == LogLevel::info && log.identity.load()->rank != 0)) return;
  if (level == LogLevel::warning) {
    auto found = log.warnings.find(text);
    if (found != log.warnings.end()) {
      ++found->second;
      return;
    }
    log.warnings.emplace(std::string(text), 1);
  }
  emit(log, level, text);
}

void log_urgent(LogLevel level, std::string_view text) {
  LogState& log = state();
  if (level < log.least) return;
  const std::unique_lock lock = lock_if_free(log);
  const std::string line = fmt::format("{}{}{}{}\n", time_prefix(log), log.identity.load()->prefix,
                                       label(level, log.colored), printable_lines(text));
  if (lock && !log.status.empty()) write_if_taken(STDOUT_FILENO, kEraseLine);
  write_if_taken(STDERR_FILENO, line);
}

void log_from_signal_handler(std::initializer_list<const char*> parts) noexcept {
  char line[512];
  size_t size = 0;
  const auto add = [&](const char* part) {
    const size_t length = std::min(std::strlen(part), sizeof line - 1 - size);
    std::memcpy(line + size, part, length);
    size += length;
  };
  add(state().identity.load()->prefix.c_str());
  add(label(LogLevel::error, state().colored));
  const size_t words = size;
  for (const char* part : parts) add(part);
  // Does the same as printable_lines(), but in place, because nothing may be allocated here.
  std::replace_if(
      line + words, line + size, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  line[size++] = '\n';
  write_if_taken(STDERR_FILENO, {line, size});
}

void log_status(std::string_view text) {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  if (log.least > LogLevel::info || log.identity.load()->rank != 0 || (log.status.empty() && text.empty())) return;
  log.status = text;
  write_all(STDOUT_FILENO, fmt::format("{}{}", kEraseLine, text));
}

void log_repeated_warnings() {
  LogState& log = state();
  const std::unique_lock lock = lock_if_free(log);
  if (!lock) return;
  for (auto& [text, count] : log.warnings) {
    if (count > 1) emit(log, LogLevel::warning, fmt::format("{} times: {}", count, text));
  }
  log.warnings.clear();
}

}  // namespace lockstep
