#include "lockstep/observe/slowdown.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

constexpr double kSlowRate = 0.7, kRecoveredRate = 0.85;  // relative to the best window
constexpr int kSlowWindowsToReport = 3;
constexpr int64_t kWindowSteps = 5;
constexpr double kWindowSeconds = 0.2;
constexpr double kDominance = 2;      // factor by which one rank's growth must exceed that of any other
constexpr double kMinOwnShare = 0.5;  // share of a slowdown that a rank's own work must explain
// The share of a slowdown that waits for a single rank must explain. It is smaller because a slow rank sends its
// messages one after the other: part of the time several ranks' messages are missing, or the slow rank itself waits.
constexpr double kMinWaitShare = 1.0 / 3;

// The rank whose value has grown most.
struct Growth {
  size_t rank = 0;
  double most = 0, second = 0;  // growth of that rank, and the largest growth of any other

  bool dominates() const { return most > kDominance * second; }
};

template <class Value>
Growth growth(std::span<const RankTimes> now, std::span<const RankTimes> before, const Value& value) {
  Growth found;
  for (size_t rank = 0; rank < now.size(); ++rank) {
    const double grown = value(now[rank]) - value(before[rank]);
    if (grown > found.most) {
      found = {rank, grown, found.most};
    } else {
      found.second = std::max(found.second, grown);
    }
  }
  return found;
}

double own_work(const RankTimes& times) { return times.total() - times.part(StepPart::reduce); }

}  // namespace

double RankTimes::total() const { return std::accumulate(parts.begin(), parts.end(), 0.0); }

void RankTimes::add(const RankTimes& other, double weight) {
  for (size_t part = 0; part < parts.size(); ++part) parts[part] += other.parts[part] * weight;
  waited_for += other.waited_for * weight;
}

void attribute_waits(std::span<RankTimes> ranks, std::span<const StragglerWait> waits) {
  if (ranks.size() < 3) return;
  const auto others = static_cast<double>(ranks.size() - 1);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (waits[rank].rank < 0) continue;
    ranks[waits[rank].rank].waited_for += waits[rank].seconds / others;
    ranks[rank].waited_for -= waits[rank].seconds / others;
  }
}

int64_t steps_between_checks(double step_seconds) {
  constexpr double kMinSeconds = 0.05, kMaxSteps = 1000;
  const double steps = std::ceil(kMinSeconds / std::max(step_seconds, 1e-9));
  return static_cast<int64_t>(std::clamp(steps, static_cast<double>(kWindowSteps), kMaxSteps));
}

std::optional<Slowdown> SlowdownWatch::add(std::span<const RankTimes> ranks, int64_t steps) {
  sums_.resize(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) sums_[rank].add(ranks[rank], static_cast<double>(steps));
  steps_ += steps;
  // All ranks run in lockstep, so rank 0's total is the elapsed time of all.
  if (steps_ < kWindowSteps || sums_.front().total() < kWindowSeconds) return std::nullopt;
  std::vector<RankTimes> window(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) window[rank].add(sums_[rank], 1.0 / static_cast<double>(steps_));
  sums_.clear();
  steps_ = 0;
  return evaluate(window);
}

std::optional<Slowdown> SlowdownWatch::evaluate(std::span<const RankTimes> window) {
  const double now = window.front().total();
  if (best_.empty() || now < best_.front().total()) best_.assign(window.begin(), window.end());
  const double rate = best_.front().total() / now;  // relative to the best window
  slow_in_a_row_ = rate < kSlowRate ? slow_in_a_row_ + 1 : 0;
  if (rate > kRecoveredRate) reported_ = false;
  if (slow_in_a_row_ < kSlowWindowsToReport || reported_) return std::nullopt;
  reported_ = true;
  return explain(window);
}

Slowdown SlowdownWatch::explain(std::span<const RankTimes> now) const {
  Slowdown result{.best_seconds = best_.front().total(), .seconds = now.front().total()};
  const double slowdown = result.seconds - result.best_seconds;
  const Growth own = growth(now, best_, own_work);
  if (own.most >= slowdown * kMinOwnShare) {
    for (const StepPart part : {StepPart::data, StepPart::compute, StepPart::save}) {
      const double grown = now[own.rank].part(part) - best_[own.rank].part(part);
      if (grown <= result.added_seconds) continue;
      result.part = part;
      result.added_seconds = grown;
    }
    if (own.dominates()) result.rank = static_cast<int>(own.rank);
    return result;
  }
  // A rank whose own work has grown less than another's waits longer in the all-reduce. That wait has an explanation
  // already, so it is subtracted.
  const auto reduce = [](const RankTimes& r) { return r.part(StepPart::reduce); };
  const double explained = growth(now, best_, reduce).most;
  Growth waited_for = growth(now, best_, [&](const RankTimes& r) { return r.waited_for + reduce(r); });
  waited_for.most -= explained;
  waited_for.second = std::max(0.0, waited_for.second - explained);
  if (waited_for.most >= slowdown * kMinWaitShare && waited_for.dominates())
    result.rank = static_cast<int>(waited_for.rank);
  result.added_seconds = reduce(now.front()) - reduce(best_.front());
  return result;
}

}  // namespace lockstep
