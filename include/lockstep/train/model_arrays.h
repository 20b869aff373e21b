// The state of a run by checkpoint name: where each array of a file lies in the arenas.
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

// Everything a checkpoint holds of the model, in file order. The arenas must be addressable by the host.
std::vector<ModelArray> model_arrays(const ParameterTable& table, const ParameterLayout& layout,
                                     const ModelState& state, OptimizerKind optimizer);

}  // namespace lockstep
