// Chooses for every value the memory format that the backend prefers, with Reorder nodes between different formats.
#pragma once

#include "lockstep/backend/backend.h"
#include "lockstep/graph/graph.h"

namespace lockstep {

// Asks the backend for the formats of each node, inserts Reorder nodes before inputs of another format, and sets the
// sizes of `saved` outputs. Parameters stay plain in their arena, and each phase packs them with its own Reorder.
// Gradients of parameters, moments and kept values end in plain format.
void choose_formats(Graph& graph, const Backend& backend);

}  // namespace lockstep
