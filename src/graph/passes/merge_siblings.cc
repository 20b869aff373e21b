#include <algorithm>

#include "graph/passes/rewrite.h"

namespace lockstep {
namespace {

constexpr int64_t kBlock = 16;  // a view of a blocked tensor must start at a block

// Returns the parameter that holds the weights of the convolution, or -1 if they are not a parameter.
ParameterId weights_of(const Graph& graph, const Node& node) { return graph.value(node.inputs[1]).parameter; }

bool weights_change(const Graph& graph, const Node& node) {
  const Parameter& weights = graph.parameters[weights_of(graph, node)];
  return weights.trained() && !weights.zero_rate;
}

bool may_merge(const Graph& graph, const Node& node) {
  const auto* conv = std::get_if<Conv2d>(&node.op);
  if (!conv || conv->bias || conv->groups != 1 || node.inputs[0] == node.outputs[0]) return false;
  const Value& y = graph.value(node.outputs[0]);
  const ParameterId id = weights_of(graph, node);
  return !y.kept && y.desc.shape.c() % kBlock == 0 && id >= 0 &&
         graph.parameters[id].shape == graph.value(node.inputs[1]).desc.shape;
}

std::vector<NodeId> siblings_of(const Graph& graph, NodeId first) {
  const Node& node = graph.node(first);
  std::vector<NodeId> siblings;
  if (!may_merge(graph, node)) return siblings;
  const Window& window = std::get<Conv2d>(node.op).window;
  const bool change = weights_change(graph, node);
  for (NodeId n = first; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const Node& other = graph.node(n);
    if (may_merge(graph, other) && other.inputs[0] == node.inputs[0] && std::get<Conv2d>(other.op).window == window &&
        weights_change(graph, other) == change) {
      siblings.push_back(n);
    }
  }
  return siblings;
}

// Adds one value for all the weights, which become adjacent.
ValueId stack_weights(Graph& graph, const std::vector<NodeId>& siblings) {
  Value stacked = graph.value(graph.node(siblings.front()).inputs[1]);
  std::vector<ParameterId> group;
  stacked.desc.shape[0] = 0;
  for (NodeId n : siblings) {
    group.push_back(weights_of(graph, graph.node(n)));
    stacked.desc.shape[0] += graph.parameters[group.back()].shape[0];
  }
  stacked.name += ".stacked";
  graph.adjacent_parameters.push_back(std::move(group));
  return graph.add_value(std::move(stacked));
}

// Replaces the first sibling by the merged convolution and a Slice for each sibling, and removes the others.
void merge(Graph& graph, const std::vector<NodeId>& siblings) {
  const Node first = graph.node(siblings.front());
  const ValueId weights = stack_weights(graph, siblings);
  Value y = graph.value(first.outputs[0]);
  y.name = first.name + ".merged";
  y.desc.shape[1] = graph.value(weights).desc.shape[0];
  const ValueId merged = graph.add_value(std::move(y));

  std::vector<Node> nodes;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    if (n == siblings.front()) {
      nodes.push_back({first.name + ".merged", first.op, {first.inputs[0], weights}, {merged}, first.phase});
      int64_t begin = 0;
      for (NodeId s : siblings) {
        const Node& sibling = graph.node(s);
        const int64_t count = graph.value(sibling.outputs[0]).desc.shape.c();
        nodes.push_back({sibling.name, Slice{begin, count}, {merged}, sibling.outputs, sibling.phase});
        begin += count;
      }
    } else if (!std::ranges::count(siblings, n)) {
      nodes.push_back(std::move(graph.node(n)));
    }
  }
  graph.nodes = std::move(nodes);
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    for (ValueId output : graph.node(n).outputs) graph.value(output).producer = n;
  }
}

}  // namespace

int merge_siblings(Graph& graph) {
  int matches = 0;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const std::vector<NodeId> siblings = siblings_of(graph, n);
    if (siblings.size() < 2) continue;
    merge(graph, siblings);
    ++matches;
  }
  return matches;
}

}  // namespace lockstep
