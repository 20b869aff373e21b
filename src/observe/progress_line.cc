#include "lockstep/observe/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

// Returns " [data 0 compute 94 reduce 5 save 1 %]", or an empty string if no time was measured.
std::string split(const ProgressRow& r) {
  const double sum = r.data_seconds + r.compute_seconds + r.reduce_seconds + r.save_seconds;
  if (sum <= 0) return {};
  return fmt::format(" [data {:.0f} compute {:.0f} reduce {:.0f} save {:.0f} %]", 100 * r.data_seconds / sum,
                     100 * r.compute_seconds / sum, 100 * r.reduce_seconds / sum, 100 * r.save_seconds / sum);
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string rate_text(double examples_per_second) {
  return std::isnan(examples_per_second) ? "-" : fmt::format("{:.1f}", examples_per_second);
}

std::string loss_text(double loss, int digits) {
  return std::isnan(loss) ? "none" : fmt::format("{:.{}f}", loss, digits);
}

}  // namespace

std::string training_line(const std::string& timestamp, const ProgressRow& r) {
  std::string line = fmt::format(
      "{}: step {}, loss = {} ({} examples/sec; {:.3f} sec/batch) [data {:.3f} compute {:.3f} reduce {:.3f} "
      "save {:.3f}",
      timestamp, r.step, loss_text(r.loss, 2), rate_text(r.examples_per_second), r.seconds_per_step, r.data_seconds,
      r.compute_seconds, r.reduce_seconds, r.save_seconds);
  if (!r.slowest_rank.empty()) line += fmt::format("; slowest rank {} {:+.3f}", r.slowest_rank, r.slowest_lag_seconds);
  return line + "]";
}

std::string progress_bar(const ProgressRow& r, int width, bool colored) {
  const double done = r.total_steps > 0 ? static_cast<double>(r.step) / static_cast<double>(r.total_steps) : 0;
  const std::string left = fmt::format("step {}/{} ", r.step, r.total_steps);
  std::string right =
      fmt::format(" {} examples/sec loss {} ETA {}", rate_text(r.examples_per_second), loss_text(r.loss, 3),
                  duration(static_cast<double>(r.total_steps - r.step) * r.seconds_per_step));
  constexpr int kMinBarWidth = 8;
  const auto room_beside = [&](const std::string& text) {
    return width - static_cast<int>(left.size() + text.size()) - 3;
  };
  if (const std::string more = right + split(r); room_beside(more) >= kMinBarWidth) right = more;
  const int room = room_beside(right);
  if (room < kMinBarWidth) return (left + right).substr(0, std::max(0, width - 1));
  const int filled = std::clamp(static_cast<int>(done * room), 0, room);
  std::string bar(filled, '=');
  if (filled < room) bar += '>';
  const std::string rest(static_cast<size_t>(room) - bar.size(), ' ');
  if (colored) bar = "\x1b[32m" + bar + "\x1b[0m";  // green
  return left + '[' + bar + rest + ']' + right;
}

}  // namespace lockstep
