#include <algorithm>
#include <iterator>

#include "graph/passes/rewrite.h"

namespace lockstep {

int sum_into_pool(Graph& graph, const Backend& backend) {
  const auto readers = readers_of(graph);
  std::vector<bool> dead(graph.nodes.size(), false);
  int sums = 0;
  for (Node& add : graph.nodes) {
    if (!std::holds_alternative<Add>(add.op)) continue;
    const auto is_pool = [&](ValueId v) {
      const NodeId maker = graph.value(v).producer;
      return maker >= 0 && std::holds_alternative<MaxPoolGrad>(graph.node(maker).op) && readers[v].size() == 1 &&
             std::ranges::count(add.inputs, v) == 1;
    };
    const auto found = std::ranges::find_if(add.inputs, is_pool);
    if (found == add.inputs.end()) continue;
    const NodeId maker = graph.value(*found).producer;
    const Node& pool = graph.node(maker);
    const auto& op = std::get<MaxPoolGrad>(pool.op);
    std::vector<ValueId> inputs = pool.inputs;
    std::ranges::copy_if(add.inputs, std::back_inserter(inputs), [&](ValueId v) { return v != *found; });
    const MaxPoolGradSum sum{op.window, op.input};
    const auto descs = graph.descs(inputs);
    if (!backend.can(sum, descs, infer(sum, descs))) continue;
    graph.value(*found).producer = -1;
    dead[maker] = true;
    add.op = sum;
    add.inputs = std::move(inputs);
    ++sums;
  }
  remove_nodes(graph, dead);
  return sums;
}

int sum_behind_pool(Graph& graph, const Backend& backend) {
  const auto readers = readers_of(graph);
  std::vector<bool> dead(graph.nodes.size(), false);
  int sums = 0;
  for (Node& pool : graph.nodes) {
    const auto* average = std::get_if<AvgPool>(&pool.op);
    if (!average) continue;
    const auto is_norm = [&](NodeId n) {
      const auto* vectors = std::get_if<BatchNormStatistics>(&graph.node(n).op);
      return vectors && vectors->to == graph.value(pool.outputs[0]).desc.dtype;
    };
    const auto found = std::ranges::find_if(readers[pool.outputs[0]], is_norm);
    if (found == readers[pool.outputs[0]].end()) continue;
    const Node& norm = graph.node(*found);
    const auto& vectors = std::get<BatchNormStatistics>(norm.op);
    const AvgPoolStatistics op{average->window, average->count_include_pad, vectors.epsilon, vectors.samples,
                               vectors.to};
    std::vector<ValueId> inputs = norm.inputs;
    inputs[0] = pool.inputs[0];
    const auto descs = graph.descs(inputs);
    if (!backend.can(op, descs, infer(op, descs))) continue;
    for (const ValueId output : norm.outputs) {
      graph.value(output).producer = static_cast<NodeId>(&pool - graph.nodes.data());
      pool.outputs.push_back(output);
    }
    dead[*found] = true;
    pool.op = op;
    pool.inputs = std::move(inputs);
    ++sums;
  }
  remove_nodes(graph, dead);
  return sums;
}

}  // namespace lockstep
