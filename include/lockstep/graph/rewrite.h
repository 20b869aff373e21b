// The rewrites: laws of the mathematics that turn a graph into a cheaper one that computes the same. They run on the
// forward graph, before gradients are added, in the order of the table.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/graph/graph.h"

namespace lockstep {

struct Rewrite {
  std::string_view name;
  int (*apply)(Graph&);  // returns how many places it changed
};

std::span<const Rewrite> rewrites();

// Batch norm followed by a ReLU that is its only reader becomes one operation.
int fuse_norm_relu(Graph& graph);

}  // namespace lockstep
