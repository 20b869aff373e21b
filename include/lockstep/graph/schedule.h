// The one order in which nodes run, and when each gradient is final.
#pragma once

#include <vector>

#include "lockstep/graph/graph.h"

namespace lockstep {

struct Schedule {
  std::vector<NodeId> order;
  int32_t forward_end = 0;      // positions below run forward, the rest backward
  std::vector<NodeId> weights;  // of Phase::weights; not in the order
  // Trained parameters in the order in which their gradients are final: the order of the arenas.
  std::vector<ParameterId> gradient_order;
  std::vector<int32_t> gradient_ready;  // for each of gradient_order the position of the node that finishes it
};

// Puts forward nodes first, each phase in graph order, and leaves out nodes whose results are not read.
Schedule make_schedule(const Graph& graph);

}  // namespace lockstep
