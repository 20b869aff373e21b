// Saves memory for a little time: the backward pass recomputes normalized activations.
#pragma once

#include "lockstep/graph/graph.h"

namespace lockstep {

// Runs after add_gradients. Backward nodes that read the output of a batch norm, or a concatenation of such outputs,
// read a copy instead that is computed just before, from the moments of the batch and the input of the batch norm,
// which its gradient needs anyway. The bits are the same. Average pools of slices are recomputed as well, because other
// slices keep the memory of their input (hoist_pointwise, merge_siblings). Returns the number of batch norms that run
// twice.
int recompute_norm(Graph& graph);

}  // namespace lockstep
