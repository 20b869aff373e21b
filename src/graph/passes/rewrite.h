// Rewrites a graph into a cheaper one that computes the same. The rewrites run on the forward graph, before gradients
// are added, in the order of the table. Parameters keep their names and shapes.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/graph/graph.h"

namespace lockstep {

struct Rewrite {
  std::string_view name;
  int (*apply)(Graph&);  // returns how many matches it changed
  // Whether it pays only if batch norms read slices without a copy (Backend::reads_slice).
  bool makes_slices = false;
};

std::span<const Rewrite> rewrites();

// Merges a concatenation into the only concatenation that reads it.
int flatten_concat(Graph& graph);

// Moves a 1x1 convolution without bias in front of an average pool. The two commute, because one works on channels and
// the other on spatial positions. It pays if only the convolution reads the pool, the pool keeps the size of the image
// and the convolution has fewer output channels than input channels: fewer channels are pooled, and merge_siblings can
// merge the convolution with others that read the input of the pool.
int hoist_pointwise(Graph& graph);

// Merges convolutions without bias that have equal windows and read the same value into one convolution, of whose
// output theirs become slices. Their weights become adjacent (Graph::adjacent_parameters), so nothing is copied.
// Numbers of channels must be multiples of 16.
int merge_siblings(Graph& graph);

// Fuses a batch norm with a ReLU that is its only reader.
int fuse_norm_relu(Graph& graph);

// Lets batch norms normalize over the samples of `ranks` ranks, all of which must run the graph at the same time. It is
// not in the table, because it changes the result. Runs after the rewrites and changes nothing for one rank.
int synchronize_batch_norms(Graph& graph, int ranks);

}  // namespace lockstep
