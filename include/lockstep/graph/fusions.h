// Which parts of batch norms the convolutions of a compiled training graph compute, for reports.
#pragma once

#include <string>
#include <vector>

#include "lockstep/graph/graph.h"

namespace lockstep {

struct ConvolutionFusion {
  std::string layer;
  bool sums = false;        // it computes the sums for the batch norm after it
  bool normalizes = false;  // it normalizes its input, which is that of a batch norm
  std::string why_not;      // the part that it does not compute, and the reason; empty: it computes both
};

// The convolutions of the forward pass, in order.
std::vector<ConvolutionFusion> convolution_fusions(const Graph& graph);

}  // namespace lockstep
