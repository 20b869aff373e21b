// Slices without copies: which values lie inside others.
#pragma once

#include "lockstep/backend/backend.h"
#include "lockstep/graph/graph.h"

namespace lockstep {

// Runs after formats are chosen. A member of a Concat that only an operation which can write slices makes becomes a
// view of the whole, and so does the output of a Slice that only operations which can read slices read; Concat and
// Slice then copy nothing for them. Views of views are not made. Returns how many values became views.
int alias_concat(Graph& graph, const Backend& backend);

}  // namespace lockstep
