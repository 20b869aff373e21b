// The rewrites: laws of the mathematics that turn a graph into a cheaper one that computes the same. They run on the
// forward graph, before gradients are added, in the order of the table. Parameters keep their names and shapes.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/graph/graph.h"

namespace lockstep {

struct Rewrite {
  std::string_view name;
  int (*apply)(Graph&);  // returns how many matches it changed
  // Pays only where batch norms read slices without a copy (Backend::reads_slice).
  bool makes_slices = false;
};

std::span<const Rewrite> rewrites();

// A concatenation of concatenations is one, where nobody else reads the inner one.
int flatten_concat(Graph& graph);

// A 1x1 convolution without bias and an average pool commute: one works on channels, the other on spatial positions.
// Where it alone reads the pool, the pool keeps the image's size and the convolution makes fewer channels than it
// reads, it goes first: fewer channels are pooled, and it becomes a sibling of the other convolutions that read the
// pool's input.
int hoist_pointwise(Graph& graph);

// Convolutions of equal windows without bias that read one value are one convolution with their channels stacked, whose
// output they are slices of. Their weights will lie side by side (Graph::adjacent_parameters), so that merging copies
// nothing. Numbers of channels must be multiples of 16.
int merge_siblings(Graph& graph);

// Batch norm followed by a ReLU that is its only reader becomes one operation.
int fuse_norm_relu(Graph& graph);

// Not in the table, because it changes what is computed: batch norms normalize over the samples of `ranks` ranks, all
// of which must run the graph at once. Runs after the rewrites; one rank needs no change.
int synchronize_batch_norms(Graph& graph, int ranks);

}  // namespace lockstep
