// Less memory for a little time: normalized activations are made again where the backward pass wants them.
#pragma once

#include "lockstep/graph/graph.h"

namespace lockstep {

// Runs after add_gradients. Backward nodes that read the output of a batch norm, or a concatenation of some, read a
// copy made just before, from the batch norm's input (which its own gradient needs anyway) and the moments of the
// batch, to the same bits. So do those that read an average pool of a slice, whose memory the other slices keep
// (hoist_pointwise, merge_siblings). Returns how many batch norms are made twice.
int recompute_norm(Graph& graph);

}  // namespace lockstep
