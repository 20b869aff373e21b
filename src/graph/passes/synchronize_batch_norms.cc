#include <utility>

#include "graph/passes/rewrite.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Returns the running mean of a batch norm, relative to which its moments are computed.
ValueId running_mean_of(const Node& norm, const std::vector<Node>& nodes,
                        const std::vector<std::vector<NodeId>>& readers) {
  for (const NodeId reader : readers[norm.outputs[1]]) {
    const Node& node = nodes[reader];
    if (std::holds_alternative<BatchMoments>(node.op)) return node.inputs[2];
  }
  fail(ExitCode::internal, "{} has no moments", norm.name);
}

}  // namespace

int synchronize_batch_norms(Graph& graph, int ranks) {
  if (ranks == 1) return 0;
  const auto readers = readers_of(graph);
  const std::vector<Node> nodes = std::exchange(graph.nodes, {});
  int changed = 0;
  for (Node node : nodes) {
    if (const BatchNorm* found = std::get_if<BatchNorm>(&node.op)) {
      const BatchNorm norm = *found;
      const ValueId x = node.inputs[0], running_mean = running_mean_of(node, nodes, readers);
      const Shape shape = graph.value(x).desc.shape;
      const ValueId own = graph.add_node(node.name + ".sums", SyncBatchNormSums{}, {x, running_mean}).front();
      const ValueId all = graph.add_node(node.name + ".all_sums", SumOverRanks{}, {own}).front();
      node.op = SyncBatchNorm{norm.epsilon, norm.relu, ranks * shape.n() * shape.h() * shape.w()};
      node.inputs = {x, node.inputs[1], node.inputs[2], running_mean, all};
      ++changed;
    }
    graph.append(std::move(node));
  }
  return changed;
}

}  // namespace lockstep
