// Rank-aware log. Rank 0 alone prints plain information; any rank prints its warnings and errors, prefixed with rank
// and host. Each line is one write(2), so lines of different ranks never mix. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep {

// Called once by main after MPI has started; the parameters are plain integers because this layer does not know MPI.
// Before that, the process logs as rank 0 of 1.
void set_log_identity(int rank, int size, std::string host);
int log_rank();

// Sets whether the words "warning:" and "error:" are colored; by default they are not. The caller has verified that
// standard error leads to a terminal.
void set_log_colors(bool colored);

enum class LogLevel { info, warning, error };

// Lines below this level are left out; the progress bar counts as `info`. With `time`, each line begins with the local
// time, except those of log_from_signal_handler(). Until this is called: all lines, without the time.
void set_log_style(LogLevel least, bool time);
// Whether lines begin with the time.
bool log_has_time();

// Writes one line. info: standard output, rank 0 only; warning and error: standard error, any rank, with a
// "rank R@host: " prefix when there are several ranks. A warning with the same text is printed once and then counted.
void log_line(LogLevel level, std::string_view text);

// A line that stays at the bottom of a terminal (a progress bar): drawn again below every line that is logged. Rank 0
// only; the caller has verified that standard output leads to a terminal. An empty text removes the line.
void log_status(std::string_view text);

// For threads that must not block (the fatal report, the watchdog): writes a warning or an error even if another thread
// holds the log, and gives up if nothing can be written for two seconds.
void log_urgent(LogLevel level, std::string_view text);

// The same for a signal handler: calls only async-signal-safe functions.
void log_from_signal_handler(std::initializer_list<const char*> parts) noexcept;

// "N times: text" for every warning that came more than once; called by main at the end.
void log_repeated_warnings();

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep
