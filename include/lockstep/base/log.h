// Rank-aware log. Plain information is printed by rank 0 alone; warnings and errors by whichever rank has them,
// prefixed with rank and host. Each line is one write(2), so lines of different ranks never mix. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep {

// Set once by main after MPI has started (plain integers, so that this layer does not know MPI).
// Before that the process speaks as rank 0 of 1.
void set_log_identity(int rank, int size, std::string host);
int log_rank();

// Whether the words "warning:" and "error:" are colored. Not, before this is called; the caller has made sure that
// standard error ends in a terminal.
void set_log_colors(bool colored);

enum class LogLevel { info, warning, error };

// Lines below this level are left out, the progress bar with those of `info`. With `time`, each line begins with the
// local time, except those of log_from_signal_handler(). Until this is called: all lines, without the time.
void set_log_style(LogLevel least, bool time);
// Whether lines begin with the time.
bool log_has_time();

// Writes one line. info: standard output, rank 0 only; warning and error: standard error, any rank, with a
// "rank R@host: " prefix when there are several ranks. A warning with the same text is printed once and then counted.
void log_line(LogLevel level, std::string_view text);

// A line that stays at the bottom of a terminal (a progress bar): drawn again below every line that is logged. Rank 0
// only; the caller has made sure that standard output ends in a terminal. Empty: removed.
void log_status(std::string_view text);

// For what must not be held up (the fatal report, the watchdog): a warning or an error is written even when another
// thread holds the log, and given up where nobody takes it for two seconds.
void log_urgent(LogLevel level, std::string_view text);

// The same for a signal handler: only what is allowed in one.
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
