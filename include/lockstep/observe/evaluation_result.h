// What one evaluation of the model found.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/backend/model_state.h"

namespace lockstep {

struct EvaluationResult {
  Weights weights = Weights::raw;
  int64_t examples = 0, top1 = 0, top5 = 0;  // top1, top5: correct ones
  // Mean cross-entropy, without label smoothing, to four decimals: digits beyond depend on the batch size, by which
  // libraries choose how they round.
  double loss = 0;
  std::optional<double> auc;  // with two classes: area_under_curve(), to five decimals for the same reason
  double top1_fraction() const { return examples ? static_cast<double>(top1) / static_cast<double>(examples) : 0; }
  double top5_fraction() const { return examples ? static_cast<double>(top5) / static_cast<double>(examples) : 0; }
  // By what one state is better than another: with two classes, of which one is often rare, the area.
  double score() const { return auc.value_or(top1_fraction()); }
};

}  // namespace lockstep
