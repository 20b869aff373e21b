// Turns slices into views, so that concatenations and slices need no copies.
#pragma once

#include "lockstep/backend/backend.h"
#include "lockstep/graph/graph.h"

namespace lockstep {

// Runs after formats are chosen. An input of a Concat becomes a view of the whole if its operation can write slices,
// and the output of a Slice if all its readers can read slices; Concat and Slice then copy nothing. There are no views
// of views. Returns the number of new views.
int alias_concat(Graph& graph, const Backend& backend);

}  // namespace lockstep
