// Reverse-mode differentiation as a graph transform: gradients are ordinary nodes.
#pragma once

#include "lockstep/graph/graph.h"

namespace lockstep {

// Appends the backward nodes of all loss heads, last layer first, and marks the gradient of every trained parameter
// (Value::gradient_of). Nothing is appended for a part that leads to no trained parameter. The differentiated function
// is the sum over heads of head weight * summed loss; the update divides by the number of samples. Throws
// Error(internal) if a trained parameter does not influence any loss.
void add_gradients(Graph& graph);

}  // namespace lockstep
