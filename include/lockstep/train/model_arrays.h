// Maps the arrays of a checkpoint to their memory in the arenas.
#pragma once

#include <vector>

#include "lockstep/backend/model_state.h"
#include "lockstep/backend/update.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep {

// Returns all arrays of the model that a checkpoint contains, in file order. Their data are in the arenas of `state`,
// which the host must be able to address.
std::vector<CheckpointArray> model_arrays(const ParameterTable& table, const ParameterLayout& layout,
                                          const ModelState& state, OptimizerKind optimizer);

}  // namespace lockstep
