#include "graph/passes/rewrite.h"

namespace lockstep {
namespace {

// Returns the `relu` flag of a batch norm of training or evaluation, or null for other operations.
bool* relu_flag(Op& op) {
  return std::visit(Overload{[](BatchNorm& o) { return &o.relu; }, [](BatchNormInference& o) { return &o.relu; },
                             [](auto&) -> bool* { return nullptr; }},
                    op);
}

}  // namespace

int fuse_norm_relu(Graph& graph) {
  const auto readers = readers_of(graph);
  std::vector<bool> dead(graph.nodes.size(), false);
  int fused = 0;
  for (Node& norm : graph.nodes) {
    bool* flag = relu_flag(norm.op);
    if (!flag || *flag) continue;
    const ValueId y = norm.outputs[0];
    const auto& read_by = readers[y];
    if (read_by.size() != 1 || graph.value(y).kept) continue;
    Node& relu = graph.node(read_by[0]);
    const auto* op = std::get_if<Relu>(&relu.op);
    if (!op || op->six) continue;
    *flag = true;
    const ValueId result = relu.outputs[0];  // keeps its name and readers, and is now written by the batch norm
    graph.value(result).producer = graph.value(y).producer;
    norm.outputs[0] = result;
    graph.value(y).producer = -1;
    dead[read_by[0]] = true;
    ++fused;
  }
  remove_nodes(graph, dead);
  return fused;
}

}  // namespace lockstep
