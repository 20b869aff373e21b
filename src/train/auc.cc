#include "train/auc.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep {

double area_under_curve(Scores scores) {
  const auto is_nan = [](float score) { return std::isnan(score); };
  if (scores.positive.empty() || scores.negative.empty() || std::ranges::any_of(scores.positive, is_nan) ||
      std::ranges::any_of(scores.negative, is_nan)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::ranges::sort(scores.negative);
  uint64_t halves = 0;  // two per pair with a higher score, one per pair with equal scores
  for (const float score : scores.positive) {
    const auto equal = std::ranges::equal_range(scores.negative, score);
    halves += (equal.begin() - scores.negative.begin()) + (equal.end() - scores.negative.begin());
  }
  const double pairs = static_cast<double>(scores.positive.size()) * static_cast<double>(scores.negative.size());
  return static_cast<double>(halves) / (2 * pairs);
}

}  // namespace lockstep
