// Maps the arrays of a checkpoint to their memory in the arenas.
#pragma once

#include <string>
#include <vector>

#include "lockstep/backend/model_state.h"
#include "lockstep/backend/update.h"

namespace lockstep {

struct ModelArray {
  std::string path;  // "/model/fc.weight", "/ema/fc.weight", "/optimizer/momentum/fc.weight"
  Shape shape;
  float* data = nullptr;  // into an arena of `state`
};

// Returns all arrays of the model that a checkpoint contains, in file order. The host must be able to address the
// arenas.
std::vector<ModelArray> model_arrays(const ParameterTable& table, const ParameterLayout& layout,
                                     const ModelState& state, OptimizerKind optimizer);

}  // namespace lockstep
