#include "lockstep/observe/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

constexpr int64_t kWarmUpSteps = 2;

}  // namespace

void RunSummary::add(std::span<const float> step_seconds, int64_t samples, std::span<const RankTimes> ranks) {
  const auto steps = static_cast<int64_t>(step_seconds.size());
  const auto left_out = std::min(steps, kWarmUpSteps - skipped_);
  skipped_ += left_out;
  const auto counted = step_seconds.subspan(static_cast<size_t>(left_out));
  step_seconds_.insert(step_seconds_.end(), counted.begin(), counted.end());
  steps_ += steps;
  samples_ += samples;
  sums_.resize(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) sums_[r].add(ranks[r], static_cast<double>(steps));
}

std::vector<std::string> RunSummary::lines() const {
  if (step_seconds_.empty()) return {};
  std::vector<float> sorted = step_seconds_;
  std::ranges::sort(sorted);
  const auto at = [&](double share) {
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
  };
  const double seconds = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  const double samples_a_step = static_cast<double>(samples_) / static_cast<double>(steps_);
  double total = 0;
  for (const RankTimes& rank : sums_) total += rank.total();
  const auto share = [&](StepPart part) {
    double sum = 0;
    for (const RankTimes& rank : sums_) sum += rank.part(part);
    return total > 0 ? 100 * sum / total : 0;
  };
  std::vector<std::string> lines = {
      fmt::format(
          "{} step{} in a row took {:.1f} s: {:.1f} examples/sec, {:.1f} a rank; a step took {:.4f} s (median), "
          "{:.4f} s (95 %), {:.4f} s (99 %), {:.4f} s (at most)",
          sorted.size(), sorted.size() == 1 ? "" : "s", seconds,
          samples_a_step * static_cast<double>(sorted.size()) / seconds,
          samples_a_step * static_cast<double>(sorted.size()) / seconds / static_cast<double>(sums_.size()), at(0.5),
          at(0.95), at(0.99), sorted.back()),
      fmt::format("of the ranks' time went into data {:.1f} %, compute {:.1f} %, reduce {:.1f} %, save {:.1f} %",
                  share(StepPart::data), share(StepPart::compute), share(StepPart::reduce), share(StepPart::save))};
  if (sums_.size() > 1) {
    lines.back() +=
        fmt::format("; scaling efficiency {:.1f} % (all but the wait for other ranks)", 100 - share(StepPart::reduce));
  }
  return lines;
}

}  // namespace lockstep
