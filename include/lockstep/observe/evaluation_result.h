// The metrics of one evaluation of the model.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/backend/model_state.h"

namespace lockstep {

struct EvaluationResult {
  Weights weights = Weights::raw;
  int64_t examples = 0, top1 = 0, top5 = 0;  // numbers of examples: all, and those that are correct in the top 1 and 5
  // Mean cross-entropy without label smoothing, rounded to four decimals. Further digits depend on the batch size,
  // because libraries choose their kernels, and so the rounding, by it.
  double loss = 0;
  std::optional<double> auc;  // area_under_curve() if there are two classes, rounded to five decimals
  double top1_fraction() const { return examples ? static_cast<double>(top1) / static_cast<double>(examples) : 0; }
  double top5_fraction() const { return examples ? static_cast<double>(top5) / static_cast<double>(examples) : 0; }
  // The value by which two states are compared; higher is better. With two classes it is the AUC, because one class is
  // often rare.
  double score() const { return auc.value_or(top1_fraction()); }
};

}  // namespace lockstep
