// Which nodes compute the moments that update running statistics.
#pragma once

#include <vector>

#include "lockstep/graph/graph.h"

namespace lockstep {

// The moments of one batch norm: their statistics, and the number of values per channel and sample.
struct NormMoments {
  ParameterId mean = -1, var = -1;
  int64_t channels = 0, spatial = 0;
  bool operator==(const NormMoments&) const = default;
};

// Returns those of all batch norms of a training graph, fused or not, in the order of the graph.
std::vector<NormMoments> moments_of(const Graph& graph);

}  // namespace lockstep
