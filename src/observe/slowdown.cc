#include "lockstep/observe/slowdown.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

// A slowdown is reported within twenty steps: up to four steps of a window that began before it, and three windows.
constexpr int64_t kWindowSteps = 5;
constexpr int kSlowWindowsToReport = 3;
// Long compared with the few milliseconds for which a scheduler lets another process run.
constexpr double kWindowSeconds = 0.2;
// The rate, relative to the best window, below which a window is slow. Windows of a steady run that shares its cores
// with other programs stay above it.
constexpr double kSlowRate = 0.7;
// A rank is named if its share of a slowdown exceeds that of any other rank by this much. A rank with a slow link sends
// its N - 1 messages one after the other, so the others wait for it during N / 2 of them on average, which is more than
// half of the time. A sixth is left for waits that cannot be attributed, because messages of several ranks are missing.
constexpr double kMinLead = 1.0 / 3;

double own_work(const RankTimes& times) { return times.total() - times.part(StepPart::reduce); }

// Returns for each rank how long the others waited for it alone, as a mean over them, minus what it waited for one
// other: a rank with a slow link also waits for replies, but only from one rank at a time. With two ranks, each waits
// for the other, whichever is slow, so the difference says nothing.
std::vector<double> waits_for(std::span<const RankTimes> ranks) {
  std::vector<double> waits(ranks.size());
  if (ranks.size() < 3) return waits;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].straggler < 0) continue;
    const double mean = ranks[rank].straggler_wait / static_cast<double>(ranks.size() - 1);
    waits[ranks[rank].straggler] += mean;
    waits[rank] -= mean;
  }
  return waits;
}

// Returns the rank whose positive value is larger than that of any other by `lead`, or -1.
int leader(std::span<const double> values, double lead) {
  const auto most = std::ranges::max_element(values);
  double second = 0;
  for (auto value = values.begin(); value != values.end(); ++value) {
    if (value != most) second = std::max(second, *value);
  }
  return *most - second >= lead ? static_cast<int>(most - values.begin()) : -1;
}

}  // namespace

double RankTimes::total() const { return std::accumulate(parts.begin(), parts.end(), 0.0); }

int64_t window_steps(double step_seconds) {
  constexpr double kMaxSteps = 1000;  // because a step may take no measurable time
  const double steps = std::ceil(kWindowSeconds / std::max(step_seconds, kWindowSeconds / kMaxSteps));
  return std::max(kWindowSteps, static_cast<int64_t>(steps));
}

RankTimes SlowdownWatch::measure(const StepTotals& totals, std::span<const double> straggler_wait_seconds) {
  const auto steps = static_cast<double>(totals.steps - totals_.steps);
  RankTimes mine;
  for (size_t part = 0; part < kStepParts; ++part) {
    mine.parts[part] = (totals.seconds[part] - totals_.seconds[part]) / steps;
  }
  straggler_wait_seconds_.resize(straggler_wait_seconds.size());
  for (size_t rank = 0; rank < straggler_wait_seconds.size(); ++rank) {
    const double waited = (straggler_wait_seconds[rank] - straggler_wait_seconds_[rank]) / steps;
    if (waited > mine.straggler_wait) {
      mine.straggler = static_cast<int64_t>(rank);
      mine.straggler_wait = waited;
    }
  }
  totals_ = totals;
  std::ranges::copy(straggler_wait_seconds, straggler_wait_seconds_.begin());
  return mine;
}

std::optional<Slowdown> SlowdownWatch::add(std::span<const RankTimes> ranks) {
  // All ranks run in lockstep, so rank 0's total is the elapsed time of all.
  const double now = ranks.front().total();
  due_at_ = totals_.steps + window_steps(now);
  if (best_.empty() || now < best_.front().total()) best_.assign(ranks.begin(), ranks.end());
  slow_in_a_row_ = best_.front().total() < kSlowRate * now ? slow_in_a_row_ + 1 : 0;
  if (slow_in_a_row_ < kSlowWindowsToReport) return std::nullopt;
  slow_in_a_row_ = 0;
  const Slowdown found = explain(ranks);
  best_.assign(ranks.begin(), ranks.end());
  return found;
}

Slowdown SlowdownWatch::explain(std::span<const RankTimes> now) const {
  Slowdown result{.best_seconds = best_.front().total(), .seconds = now.front().total()};
  const double slowdown = result.seconds - result.best_seconds;
  std::vector<double> grown(now.size());
  for (size_t rank = 0; rank < now.size(); ++rank) grown[rank] = own_work(now[rank]) - own_work(best_[rank]);
  const auto most = static_cast<size_t>(std::ranges::max_element(grown) - grown.begin());
  // The rank whose own work has grown most waits least, so if it waits longer, the network is the cause.
  if (grown[most] >= slowdown - grown[most]) {
    for (const StepPart part : {StepPart::data, StepPart::compute, StepPart::save}) {
      const double added = now[most].part(part) - best_[most].part(part);
      if (added <= result.added_seconds) continue;
      result.part = part;
      result.added_seconds = added;
    }
  } else {
    result.added_seconds = now.front().part(StepPart::reduce) - best_.front().part(StepPart::reduce);
    // A rank that starts later than the others because of its own work makes them wait for that long, too.
    const double least = std::ranges::min(grown);
    const std::vector<double> waits = waits_for(now), waits_before = waits_for(best_);
    for (size_t rank = 0; rank < now.size(); ++rank)
      grown[rank] = waits[rank] - waits_before[rank] - (grown[rank] - least);
  }
  result.rank = leader(grown, slowdown * kMinLead);
  return result;
}

}  // namespace lockstep
