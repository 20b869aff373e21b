// Which nodes compute the moments that update running statistics.
#pragma once

#include <vector>

#include "lockstep/graph/graph.h"

namespace lockstep {

// Of one batch norm: the statistics that its moments belong to, and how many values of a channel a sample has.
struct NormMoments {
  ParameterId mean = -1, var = -1;
  int64_t channels = 0, spatial = 0;
  bool operator==(const NormMoments&) const = default;
};

// Of all batch norms of a training graph, in the order of the graph; fused or not.
std::vector<NormMoments> moments_of(const Graph& graph);

}  // namespace lockstep
