#include "lockstep/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace lockstep {
namespace {

bool is_terminal_path(const std::filesystem::path& link) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(link, error).string();
  return !error && (target.starts_with("/dev/pts/") || target.starts_with("/dev/tty"));
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string loss_text(double loss, int digits) {
  return std::isnan(loss) ? "none" : fmt::format("{:.{}f}", loss, digits);
}

}  // namespace

std::string training_line(const std::string& timestamp, const ProgressRow& r) {
  std::string line = fmt::format(
      "{}: step {}, loss = {} ({:.1f} examples/sec; {:.3f} sec/batch) [data {:.3f} compute {:.3f} reduce {:.3f} "
      "save {:.3f}",
      timestamp, r.step, loss_text(r.loss, 2), r.examples_per_second, r.seconds_per_step, r.data_seconds,
      r.compute_seconds, r.reduce_seconds, r.save_seconds);
  if (!r.slowest_rank.empty()) line += fmt::format("; slowest rank {} {:+.3f}", r.slowest_rank, r.slowest_lag_seconds);
  return line + "]";
}

std::string progress_bar(const ProgressRow& r, int width) {
  const double done = r.total_steps > 0 ? static_cast<double>(r.step) / static_cast<double>(r.total_steps) : 0;
  const std::string left = fmt::format("step {}/{} ", r.step, r.total_steps);
  const std::string right =
      fmt::format(" {:.1f} examples/sec loss {} ETA {}", r.examples_per_second, loss_text(r.loss, 3),
                  duration(static_cast<double>(r.total_steps - r.step) * r.seconds_per_step));
  const int room = width - static_cast<int>(left.size() + right.size()) - 3;
  if (room < 8) return (left + right).substr(0, static_cast<size_t>(std::max(0, width - 1)));
  const int filled = std::clamp(static_cast<int>(done * room), 0, room);
  std::string bar(static_cast<size_t>(filled), '=');
  if (filled < room) bar += '>';
  bar.resize(static_cast<size_t>(room), ' ');
  return left + '[' + bar + ']' + right;
}

bool output_is_terminal() {
  const bool launched = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;  // NOLINT(concurrency-mt-unsafe)
  if (!launched) return ::isatty(STDOUT_FILENO) == 1;
  return is_terminal_path(fmt::format("/proc/{}/fd/1", ::getppid()));
}

}  // namespace lockstep
