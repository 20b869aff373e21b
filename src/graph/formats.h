// Puts every value into the memory format its backend wants, with visible Reorder nodes where two formats meet.
#pragma once

#include "lockstep/backend/backend.h"
#include "lockstep/graph/graph.h"

namespace lockstep {

// Asks the backend node by node, inserts Reorder nodes before inputs that lie otherwise, gives `saved` outputs their
// size. Parameters stay plain in their arena: a packed copy is a Reorder of its own in each phase. Gradients of
// parameters, moments and kept values end in plain format.
void choose_formats(Graph& graph, const Backend& backend);

}  // namespace lockstep
