#include "lockstep/graph/graph.h"

#include "lockstep/base/error.h"

namespace lockstep {

ValueId Graph::add_value(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size() - 1);
}

std::vector<TensorDesc> Graph::descs(const std::vector<ValueId>& ids) const {
  std::vector<TensorDesc> result;
  result.reserve(ids.size());
  for (ValueId id : ids) result.push_back(value(id).desc);
  return result;
}

void Graph::append(Node node) {
  for (const ValueId output : node.outputs) value(output).producer = static_cast<NodeId>(nodes.size());
  nodes.push_back(std::move(node));
}

void Graph::replace_output(NodeId id, size_t output, ValueId by) {
  ValueId& made = node(id).outputs[output];
  value(made).producer = -1;
  value(by).producer = id;
  made = by;
}

std::vector<ValueId> Graph::add_node(std::string name, Op op, std::vector<ValueId> inputs, Phase phase) {
  std::vector<TensorDesc> outputs;
  try {
    outputs = infer(op, descs(inputs));
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}: {}", name, e.what()), e.where());
  }
  Node node{.name = std::move(name), .op = std::move(op), .inputs = std::move(inputs), .phase = phase};
  const auto producer = static_cast<NodeId>(nodes.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    node.outputs.push_back(add_value({.name = outputs.size() == 1 ? node.name : fmt::format("{}:{}", node.name, i),
                                      .desc = outputs[i],
                                      .producer = producer}));
  }
  nodes.push_back(std::move(node));
  return nodes.back().outputs;
}

std::vector<ParameterId> parameters_in(const Graph& graph, ParameterId first, const Shape& shape) {
  if (graph.parameters[first].shape == shape) return {first};
  for (const std::vector<ParameterId>& group : graph.adjacent_parameters) {
    if (group.front() != first) continue;
    int64_t elements = 0;
    for (ParameterId id : group) elements += graph.parameters[id].shape.elements();
    require(elements == shape.elements(), "{} holds more or less than the group of \"{}\"", shape.to_string(),
            graph.parameters[first].name);
    return group;
  }
  fail(ExitCode::internal, "\"{}\" starts no group of parameters", graph.parameters[first].name);
}

std::vector<std::vector<NodeId>> readers_of(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (ValueId input : graph.nodes[n].inputs) {
      auto& list = readers[input];
      if (list.empty() || list.back() != static_cast<NodeId>(n)) list.push_back(static_cast<NodeId>(n));
    }
  }
  return readers;
}

void remove_nodes(Graph& graph, const std::vector<bool>& dead) {
  std::vector<Node> kept;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    const NodeId producer = dead[n] ? -1 : static_cast<NodeId>(kept.size());
    for (ValueId output : node.outputs) {
      if (graph.value(output).producer == static_cast<NodeId>(n)) graph.value(output).producer = producer;
    }
    if (!dead[n]) kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
}

}  // namespace lockstep
