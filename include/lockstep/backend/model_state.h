// The arenas of one rank: everything that a training run keeps from step to step, and scratch memory.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/step_header.h"
#include "lockstep/backend/update.h"
#include "lockstep/tensor/parameter_table.h"

namespace lockstep {

struct ModelState {
  Buffer parameters, statistics, gradients;
  Buffer copies;                                  // of parameters, in 16 bits (ApplyOptimizer::copies)
  std::vector<Buffer> slots;                      // one for each optimizer slot, laid out like the parameters
  Buffer average_parameters, average_statistics;  // empty when averaging is off
  Buffer activations;                             // shared by all executables of the rank, which never run at once

  int64_t trained_elements = 0, moment_elements = 0;
  int64_t gradient_elements() const { return trained_elements + moment_elements + kStepHeaderElements; }
};

// Which of the two sets of parameters and statistics: as trained, or their exponential moving average.
enum class Weights : uint8_t { raw, average };

struct ModelStateOptions {
  OptimizerKind optimizer = OptimizerKind::sgd;
  bool training = true;  // gradients and optimizer slots
  bool average = false;
  double initial_accumulator = 0.1;  // ftrl: initial value of its sums of squares
  DType dtype = DType::f32;
  size_t activation_bytes = 0, copy_bytes = 0;
};

// Returns the bytes that make_model_state() allocates, including activations and copies.
size_t model_state_bytes(const ParameterLayout& layout, const ModelStateOptions& options);

// Returns the initial value of each optimizer slot.
std::vector<double> initial_slots(OptimizerKind optimizer, double initial_accumulator);

// Allocates everything once. Optimizer slots get their initial values; parameters are zero.
ModelState make_model_state(const Backend& backend, Stream& stream, const ParameterLayout& layout,
                            const ModelStateOptions& options);

}  // namespace lockstep
