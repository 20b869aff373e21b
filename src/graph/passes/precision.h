// Transforms a graph so that layers compute with 16-bit numbers; parameters and losses stay float32.
#pragma once

#include "lockstep/graph/graph.h"

namespace lockstep {

// Inserts visible Cast nodes into a forward graph (before gradients are added) so that layers compute in `compute`:
// parameters stay float32 and are cast where a layer reads them; batch-norm vectors and moments, logits, losses and
// their weights stay float32. For f16 the graph gets the external input `loss_scale`. Returns the number of casts; f32
// changes nothing. After "Mixed Precision Training" (Micikevicius et al. 2018).
int lower_precision(Graph& graph, DType compute);

// Adds the external input that multiplies all gradients.
void add_loss_scale(Graph& graph);

}  // namespace lockstep
