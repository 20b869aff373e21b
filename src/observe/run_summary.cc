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
  ranks_ = ranks.size();
  for (const RankTimes& rank : ranks) {
    for (size_t part = 0; part < kStepParts; ++part) seconds_[part] += rank.parts[part] * static_cast<double>(steps);
  }
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
  const double total = std::reduce(seconds_.begin(), seconds_.end());
  const auto share = [&](StepPart part) { return total > 0 ? 100 * seconds_[static_cast<size_t>(part)] / total : 0; };
  std::vector<std::string> lines = {
      fmt::format(
          "{} step{} in a row took {:.1f} s: {:.1f} examples/sec, {:.1f} a rank; a step took {:.4f} s (median), "
          "{:.4f} s (95 %), {:.4f} s (99 %), {:.4f} s (at most)",
          sorted.size(), sorted.size() == 1 ? "" : "s", seconds,
          samples_a_step * static_cast<double>(sorted.size()) / seconds,
          samples_a_step * static_cast<double>(sorted.size()) / seconds / static_cast<double>(ranks_), at(0.5),
          at(0.95), at(0.99), sorted.back()),
      fmt::format("of the ranks' time went into data {:.1f} %, compute {:.1f} %, reduce {:.1f} %, save {:.1f} %",
                  share(StepPart::data), share(StepPart::compute), share(StepPart::reduce), share(StepPart::save))};
  if (ranks_ > 1) {
    lines.back() +=
        fmt::format("; scaling efficiency {:.1f} % (all but the wait for other ranks)", 100 - share(StepPart::reduce));
  }
  return lines;
}

}  // namespace lockstep
