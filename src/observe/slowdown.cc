#include "lockstep/observe/slowdown.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

constexpr double kFallen = 0.7, kRecovered = 0.85;
constexpr int kWindowsToTell = 3;
constexpr int64_t kWindowSteps = 5;
constexpr double kWindowSeconds = 0.2;
constexpr double kStandsOut = 2;   // times what any other rank's has grown by
constexpr double kLeastOwn = 0.5;  // of a fall
// Of a fall, what the others must have waited longer for one rank alone: its messages go out one after the other, so
// that for a part of the time several wait, or it for them.
constexpr double kLeastAwaited = 1.0 / 3;

struct Growth {
  size_t rank = 0;
  double most = 0, second = 0;  // of that rank, and of the next after it

  bool stands_out() const { return most > kStandsOut * second; }
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
    ranks[static_cast<size_t>(waits[rank].rank)].waited_for += waits[rank].seconds / others;
    ranks[rank].waited_for -= waits[rank].seconds / others;
  }
}

int64_t steps_between_checks(double step_seconds) {
  constexpr double kLeastSeconds = 0.05, kMostSteps = 1000;
  const double steps = std::ceil(kLeastSeconds / std::max(step_seconds, 1e-9));
  return static_cast<int64_t>(std::clamp(steps, static_cast<double>(kWindowSteps), kMostSteps));
}

std::optional<Slowdown> SlowdownWatch::add(std::span<const RankTimes> ranks, int64_t steps) {
  sums_.resize(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) sums_[rank].add(ranks[rank], static_cast<double>(steps));
  steps_ += steps;
  // All ranks make their steps together; the first one's sum is the time of all.
  if (steps_ < kWindowSteps || sums_.front().total() < kWindowSeconds) return std::nullopt;
  std::vector<RankTimes> window(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) window[rank].add(sums_[rank], 1.0 / static_cast<double>(steps_));
  sums_.clear();
  steps_ = 0;
  return judge(window);
}

std::optional<Slowdown> SlowdownWatch::judge(std::span<const RankTimes> window) {
  const double now = window.front().total();
  if (best_.empty() || now < best_.front().total()) best_.assign(window.begin(), window.end());
  const double rate = best_.front().total() / now;  // of the best
  slow_in_a_row_ = rate < kFallen ? slow_in_a_row_ + 1 : 0;
  if (rate > kRecovered) reported_ = false;
  if (slow_in_a_row_ < kWindowsToTell || reported_) return std::nullopt;
  reported_ = true;
  return explain(window);
}

Slowdown SlowdownWatch::explain(std::span<const RankTimes> now) const {
  Slowdown result{.best_seconds = best_.front().total(), .seconds = now.front().total()};
  const double fall = result.seconds - result.best_seconds;
  const Growth own = growth(now, best_, own_work);
  if (own.most >= fall * kLeastOwn) {
    for (const StepPart part : {StepPart::data, StepPart::compute, StepPart::save}) {
      const double grown = now[own.rank].part(part) - best_[own.rank].part(part);
      if (grown <= result.added_seconds) continue;
      result.part = part;
      result.added_seconds = grown;
    }
    if (own.stands_out()) result.rank = static_cast<int>(own.rank);
    return result;
  }
  // A rank whose own work has grown by less waits longer: what it waits longer for has been explained.
  const auto reduce = [](const RankTimes& r) { return r.part(StepPart::reduce); };
  const double explained = growth(now, best_, reduce).most;
  Growth late = growth(now, best_, [&](const RankTimes& r) { return r.waited_for + reduce(r); });
  late.most -= explained;
  late.second = std::max(0.0, late.second - explained);
  if (late.most >= fall * kLeastAwaited && late.stands_out()) result.rank = static_cast<int>(late.rank);
  result.added_seconds = reduce(now.front()) - reduce(best_.front());
  return result;
}

}  // namespace lockstep
