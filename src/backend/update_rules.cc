// The table of optimizers: names, slots and their initial values.
#include "backend/optimizer_rules.h"
#include "lockstep/base/error.h"

namespace lockstep {

std::span<const OptimizerSlots> optimizers() {
  static const OptimizerSlots kRows[] = {
      {OptimizerKind::sgd, "sgd", {"momentum"}, {0}},
      {OptimizerKind::rmsprop_tf, "rmsprop_tf", {"mean_square", "momentum"}, {1, 0}},
      {OptimizerKind::rmsprop, "rmsprop", {"mean_square", "momentum"}, {0, 0}},
      {OptimizerKind::adam, "adam", {"exp_avg", "exp_avg_sq"}, {0, 0}},
      {OptimizerKind::adamw, "adamw", {"exp_avg", "exp_avg_sq"}, {0, 0}},
      {OptimizerKind::lars, "lars", {"momentum"}, {0}},
      {OptimizerKind::ftrl, "ftrl", {"accumulator", "linear"}, {0, 0}},
  };
  return kRows;
}

const OptimizerSlots& optimizer_slots(OptimizerKind kind) {
  for (const OptimizerSlots& row : optimizers()) {
    if (row.kind == kind) return row;
  }
  kernels::refuse_optimizer(kind);
}

void kernels::refuse_optimizer(OptimizerKind kind) {
  fail(ExitCode::internal, "no optimizer has the number {}", static_cast<int>(kind));
}

}  // namespace lockstep
