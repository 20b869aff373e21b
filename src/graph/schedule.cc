#include "lockstep/graph/schedule.h"

namespace lockstep {
namespace {

bool has_effect(const Value& v) { return v.gradient_of >= 0 || v.moment_of >= 0 || v.kept; }

std::vector<bool> live_nodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes.size(), false);
  std::vector<bool> needed(graph.values.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    for (ValueId output : node.outputs) {
      live[n] = live[n] || needed[output] || has_effect(graph.value(output));
    }
    if (!live[n]) continue;
    for (ValueId input : node.inputs) needed[input] = true;
  }
  return live;
}

}  // namespace

Schedule make_schedule(const Graph& graph) {
  Schedule schedule;
  const std::vector<bool> live = live_nodes(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (live[n] && graph.nodes[n].phase == Phase::weights) schedule.weights.push_back(static_cast<NodeId>(n));
  }
  for (Phase phase : {Phase::forward, Phase::backward}) {
    if (phase == Phase::backward) schedule.forward_end = static_cast<int32_t>(schedule.order.size());
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (live[n] && graph.nodes[n].phase == phase) schedule.order.push_back(static_cast<NodeId>(n));
    }
  }
  for (size_t position = 0; position < schedule.order.size(); ++position) {
    for (ValueId output : graph.node(schedule.order[position]).outputs) {
      const ParameterId id = graph.value(output).gradient_of;
      if (id < 0) continue;
      for (ParameterId part : parameters_in(graph, id, graph.value(output).desc.shape)) {
        schedule.gradient_order.push_back(part);
        schedule.gradient_ready.push_back(static_cast<int32_t>(position));
      }
    }
  }
  return schedule;
}

}  // namespace lockstep
