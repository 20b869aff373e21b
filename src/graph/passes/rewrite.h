// Rewrites a graph into a cheaper one that computes the same. The rewrites run on the forward graph, before gradients
// are added, in the order of the table. Parameters keep their names and shapes.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/backend/backend.h"
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
// Training changes all of them or none, so that train.freeze and a learning rate of 0 merge the same ones and give the
// same bits. Numbers of channels must be multiples of 16, without groups.
int merge_siblings(Graph& graph);

// Fuses a batch norm with a ReLU that is its only reader.
int fuse_norm_relu(Graph& graph);

// ---- passes that are not in the table

// Lets batch norms normalize over the samples of `ranks` ranks, all of which must run the graph at the same time; this
// changes the result. Runs after the rewrites and changes nothing for one rank.
int synchronize_batch_norms(Graph& graph, int ranks);

// Lets the graph take its images as bytes: `op` makes of them what was the external input `images`, as elements of type
// `to`, so that no cast follows. Returns whether the graph has images.
bool feed_pixels(Graph& graph, PreparePixels op, DType to);

// Inserts visible Cast nodes into a forward graph (before gradients are added) so that layers compute in `compute`:
// parameters stay float32 and are cast where a layer reads them; batch-norm vectors and moments, logits, losses and
// their weights stay float32. For f16 the graph gets the external input `loss_scale`. Returns the number of casts; f32
// changes nothing. After "Mixed Precision Training" (Micikevicius et al. 2018).
int lower_precision(Graph& graph, DType compute);

// Adds the external input that multiplies all gradients.
void add_loss_scale(Graph& graph);

// Splits batch norms into their vectors, with the moments, and what applies them, and fuses convolutions with both,
// where the backend can (ops/conv2d.h): a convolution sums its output for the vectors of the batch norm that reads it;
// convolutions and gradients by weights that alone read a batch norm with ReLU normalize its input themselves; a
// gradient by input computes the sums of the gradient of the batch norm that it alone reaches; a max pool that alone
// reads a batch norm with ReLU normalizes its input, and its gradient is part of the batch norm's. Runs after
// add_gradients. Returns the number of fused convolutions and gradients.
int fuse_conv_norm(Graph& graph, const Backend& backend);

// Lets the gradient of a max pool add the other gradients that an Add sums with it, where the backend can. Runs after
// add_gradients. Returns the number of sums.
int sum_into_pool(Graph& graph, const Backend& backend);

// Lets an average pool sum for the vectors of the batch norm that reads it, where the backend can. Runs after
// fuse_conv_norm. Returns the number of pools.
int sum_behind_pool(Graph& graph, const Backend& backend);

// Lets the gradients of batch norms with a fixed scale take their sums from the normalized image, where the backend
// can: a gradient by input sums for a slice of a merged convolution, which its own sums cannot read, and for all batch
// norms of a concatenation; where another operation makes the gradient of the concatenation, one kernel sums for all of
// them. Their shifts and scales become adjacent. Runs after fuse_conv_norm and sum_into_pool. Returns the number of
// batch norms.
int sum_normalized(Graph& graph, const Backend& backend);

// Takes the casts of parameters out of the step, to Phase::weights, in few kernels (CastMany), and casts their
// gradients in few, where the backend can: a gradient waits until there are several million. Runs after add_gradients.
// Returns the number of casts in kernels of several.
int gather_casts(Graph& graph, const Backend& backend);

// Saves memory for a little time. Runs after add_gradients. Backward nodes that read the output of a batch norm, or a
// concatenation of such outputs, read a copy instead that is computed just before, from the moments of the batch (or
// the running statistics) and the input of the batch norm, which its gradient needs anyway. The bits are the same.
// Average pools of slices are recomputed as well, because other slices keep the memory of their input (hoist_pointwise,
// merge_siblings); with `convolutions`, so are convolutions with few multiply-adds for each value that they compute.
// Returns the number of nodes that run twice.
int recompute(Graph& graph, bool convolutions);

// Turns slices into views, so that concatenations and slices need no copies. Runs after formats are chosen. An input of
// a Concat becomes a view of the whole if its operation can write slices, and the output of a Slice if all its readers
// can read slices; Concat and Slice then copy nothing. There are no views of views. Returns the number of new views.
int alias_concat(Graph& graph, const Backend& backend);

}  // namespace lockstep
