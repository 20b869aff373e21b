#include <algorithm>

#include "graph/passes/rewrite.h"

namespace lockstep {

int flatten_concat(Graph& graph) {
  std::vector<bool> dead(graph.nodes.size(), false);
  int matches = 0;
  for (Node& outer : graph.nodes) {
    if (!std::holds_alternative<Concat>(outer.op)) continue;
    const auto readers = readers_of(graph);
    std::vector<ValueId> members;
    for (ValueId v : outer.inputs) {
      const Value& value = graph.value(v);
      const bool inner = value.producer >= 0 && std::holds_alternative<Concat>(graph.node(value.producer).op);
      const bool alone = readers[v].size() == 1 && std::ranges::count(outer.inputs, v) == 1;
      if (!inner || !alone || value.kept) {
        members.push_back(v);
        continue;
      }
      const Node& node = graph.node(value.producer);
      members.insert(members.end(), node.inputs.begin(), node.inputs.end());
      dead[value.producer] = true;
      ++matches;
    }
    outer.inputs = std::move(members);
  }
  remove_nodes(graph, dead);
  return matches;
}

}  // namespace lockstep
