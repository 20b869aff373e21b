#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "test/catch.h"
#include "test/graph/fake_backend.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Graph lowered_net() {
  ModelOptions options = small_options();
  options.dtype = DType::f32;
  Graph graph = block_net(options);
  lower_precision(graph, DType::bf16);
  add_gradients(graph);
  return graph;
}

const FakeBackend kCan({.can = [](const Op& op) { return std::holds_alternative<CastMany>(op); }});

}  // namespace

TEST_CASE("parameters are cast at once before all else, and their gradients when all are there") {
  Graph graph = lowered_net();
  const int casts = count_nodes<Cast>(graph);
  const int gathered = gather_casts(graph, kCan);
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<CastMany>(graph) == 2);  // small gradients wait for all
  CHECK(count_nodes<Cast>(graph) == casts - gathered);
  REQUIRE(std::holds_alternative<CastMany>(graph.nodes.front().op));
  for (const ValueId input : graph.nodes.front().inputs) CHECK(graph.value(input).role == ValueRole::parameter);
  REQUIRE(std::holds_alternative<CastMany>(graph.nodes.back().op));
  for (const ValueId output : graph.nodes.back().outputs) CHECK(graph.value(output).gradient_of >= 0);
  for (const Node& node : graph.nodes) {
    if (!std::holds_alternative<Cast>(node.op)) continue;
    CHECK(graph.value(node.inputs[0]).role != ValueRole::parameter);  // images and logits
    CHECK(graph.value(node.outputs[0]).gradient_of < 0);
  }
}

TEST_CASE("large gradients wait for few others") {
  ModelBuilder b({.batch_size = 2, .image_size = 4, .classes = 3});
  ValueId x = b.flatten(b.images(), "flatten");
  for (const char* name : {"a", "b", "c"}) x = b.linear(x, name, {.outputs = 1200});
  b.loss(b.linear(x, "fc", {.outputs = 3}), "loss", 1.0);
  Graph graph = std::move(b).finish();
  lower_precision(graph, DType::bf16);
  add_gradients(graph);
  gather_casts(graph, kCan);
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<CastMany>(graph) >= 3);  // "c" and "b" have two million weights together
}

TEST_CASE("a backend that casts one by one keeps its casts") {
  Graph graph = lowered_net();
  const size_t nodes = graph.nodes.size();
  CHECK(gather_casts(graph, FakeBackend()) == 0);
  CHECK(graph.nodes.size() == nodes);
  CHECK(count_nodes<CastMany>(graph) == 0);
}
