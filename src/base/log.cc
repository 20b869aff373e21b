#include "lockstep/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

namespace lockstep {
namespace {

// The log is the one piece of process-wide state: a C library's stdout has the same standing.
struct LogState {
  std::mutex mutex;
  int rank = 0;
  int size = 1;
  std::string host;
  int file = -1;
  std::string status;
  std::map<std::string, int, std::less<>> warnings;
};

LogState& state() {
  static LogState* instance = new LogState;  // never destroyed: threads may log while statics go away
  return *instance;
}

constexpr std::string_view kEraseLine = "\r\x1b[K";

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return;  // nowhere left to complain
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void emit(LogState& log, LogLevel level, std::string_view text) {
  std::string line;
  if (level != LogLevel::info) {
    if (log.size > 1) line += fmt::format("rank {}@{}: ", log.rank, log.host);
    line += level == LogLevel::warning ? "warning: " : "error: ";
  }
  line += text;
  line += '\n';
  if (!log.status.empty()) write_all(STDOUT_FILENO, kEraseLine);
  write_all(level == LogLevel::info ? STDOUT_FILENO : STDERR_FILENO, line);
  write_all(STDOUT_FILENO, log.status);
  if (log.file >= 0) write_all(log.file, line);
}

}  // namespace

void set_log_identity(int rank, int size, std::string host) {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  log.rank = rank;
  log.size = size;
  log.host = std::move(host);
}

int log_rank() {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  return log.rank;
}

void set_log_file(const std::string& path) {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  if (log.file >= 0) ::close(log.file);
  log.file = path.empty() ? -1 : ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

void log_line(LogLevel level, std::string_view text) {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  if (level == LogLevel::info && log.rank != 0) return;
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

void log_status(std::string_view text) {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  if (log.rank != 0 || (log.status.empty() && text.empty())) return;
  log.status = text;
  write_all(STDOUT_FILENO, fmt::format("{}{}", kEraseLine, text));
}

void log_repeated_warnings() {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  for (auto& [text, count] : log.warnings) {
    if (count > 1) emit(log, LogLevel::warning, fmt::format("{} times: {}", count, text));
  }
  log.warnings.clear();
}

}  // namespace lockstep
