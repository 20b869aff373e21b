#include <algorithm>

#include "graph/passes/rewrite.h"
#include "lockstep/ops/pixels.h"

namespace lockstep {

bool feed_pixels(Graph& graph, PreparePixels op, DType to) {
  const auto found = std::ranges::find_if(graph.values, [](const Value& v) {
    return v.role == ValueRole::external && v.external == ExternalInput::images;
  });
  if (found == graph.values.end()) return false;
  const auto images = static_cast<ValueId>(found - graph.values.begin());
  found->role = ValueRole::computed;
  found->desc.dtype = op.to = to;
  const Shape s = found->desc.shape;
  const auto add_input = [&](const char* name, ExternalInput input, const Shape& shape, DType dtype) {
    return graph.add_value({.name = name, .desc = {shape, dtype, {}}, .role = ValueRole::external, .external = input});
  };
  Node node{.name = "images", .op = op, .outputs = {images}};
  node.inputs = {add_input("pixels", ExternalInput::pixels, {s.n(), s.h(), s.w(), s.c()}, DType::u8)};
  if (op.changes) {
    node.inputs.push_back(add_input("changes", ExternalInput::changes, {s.n(), kImageChanges}, DType::f32));
  }
  for (Value& value : graph.values) value.producer += value.producer >= 0 ? 1 : 0;
  graph.value(images).producer = 0;
  graph.nodes.insert(graph.nodes.begin(), std::move(node));
  return true;
}

}  // namespace lockstep
