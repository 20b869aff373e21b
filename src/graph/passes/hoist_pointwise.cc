#include "graph/passes/rewrite.h"

namespace lockstep {
namespace {

bool is_pointwise(const Graph& graph, const Node& node) {
  const auto* conv = std::get_if<Conv2d>(&node.op);
  return conv && conv->window == Window{} && !conv->bias && graph.value(node.inputs[1]).parameter >= 0;
}

// Returns whether the exchange pays: the pool keeps the size of the image, and the convolution has fewer output
// channels than input channels.
bool pays(const Graph& graph, const Node& pool, const Node& conv) {
  const Shape &x = graph.value(pool.inputs[0]).desc.shape, &y = graph.value(conv.outputs[0]).desc.shape;
  return x.h() == y.h() && x.w() == y.w() && y.c() < x.c();
}

int hoist_once(Graph& graph) {
  const auto readers = readers_of(graph);
  int matches = 0;
  for (Node& pool : graph.nodes) {
    if (!std::holds_alternative<AvgPool>(pool.op)) continue;
    const Value& pooled = graph.value(pool.outputs[0]);
    const auto& read_by = readers[pool.outputs[0]];
    if (read_by.size() != 1 || pooled.kept) continue;
    Node& conv = graph.node(read_by[0]);
    if (!is_pointwise(graph, conv) || !pays(graph, pool, conv)) continue;
    // After the exchange, the convolution writes the value between the nodes, and the pool writes the result.
    Value& between = graph.value(pool.outputs[0]);
    between.desc.shape = graph.value(pool.inputs[0]).desc.shape;
    between.desc.shape[1] = graph.value(conv.outputs[0]).desc.shape.c();
    between.name = conv.name;
    graph.value(conv.outputs[0]).name = pool.name;
    std::swap(pool.op, conv.op);
    std::swap(pool.name, conv.name);
    std::swap(pool.inputs, conv.inputs);
    std::swap(pool.inputs[0],
              conv.inputs[0]);  // now the convolution reads the input and the pool reads the value between
    ++matches;
  }
  return matches;
}

}  // namespace

// Repeats until nothing changes, because a convolution may move in front of several pools.
int hoist_pointwise(Graph& graph) {
  int matches = 0;
  for (int more = hoist_once(graph); more > 0; more = hoist_once(graph)) matches += more;
  return matches;
}

}  // namespace lockstep
