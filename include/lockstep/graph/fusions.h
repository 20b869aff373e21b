// What the convolutions of a compiled training graph compute of batch norms, for people.
#pragma once

#include <string>
#include <vector>

#include "lockstep/graph/graph.h"

namespace lockstep {

struct ConvolutionFusion {
  std::string layer;
  bool sums = false;        // for the batch norm behind it
  bool normalizes = false;  // its image, which is that before a batch norm
  std::string why_not;      // what it does not do, and the reason; empty: it does both
};

// The convolutions of the forward pass, in order.
std::vector<ConvolutionFusion> convolution_fusions(const Graph& graph);

}  // namespace lockstep
