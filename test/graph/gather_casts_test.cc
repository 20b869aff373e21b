#include <algorithm>

#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "lockstep/graph/schedule.h"
#include "test/catch.h"
#include "test/graph/fake_backend.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Graph lowered_net() {
  ModelOptions options = float_options();
  Graph graph = block_net(options);
  lower_precision(graph, DType::bf16);
  add_gradients(graph);
  return graph;
}

const FakeBackend kCan({.can = [](const Op& op) { return std::holds_alternative<CastMany>(op); }});

}  // namespace

TEST_CASE("parameters are cast outside of the step at once, and their gradients when all are there") {
  Graph graph = lowered_net();
  const int casts = count_nodes<Cast>(graph);
  const int gathered = gather_casts(graph, kCan);
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<CastMany>(graph) == 2);  // small gradients wait for all
  CHECK(count_nodes<Cast>(graph) == casts - gathered);
  const Node& weights = graph.nodes.front();
  REQUIRE(std::holds_alternative<CastMany>(weights.op));
  CHECK(weights.phase == Phase::weights);
  for (size_t i = 0; i < weights.inputs.size(); ++i) {
    CHECK(graph.value(weights.inputs[i]).role == ValueRole::parameter);
    CHECK(graph.value(weights.outputs[i]).copy_of == graph.value(weights.inputs[i]).parameter);
  }
  const Schedule schedule = make_schedule(graph);
  CHECK(schedule.weights == std::vector<NodeId>{0});
  CHECK(std::ranges::count(schedule.order, 0) == 0);
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
  for (const char* name : {"a", "b", "c"}) x = b.linear(x, name, {.outputs = 2600});
  b.loss(b.linear(x, "fc", {.outputs = 3}), "loss", 1.0);
  Graph graph = std::move(b).finish();
  lower_precision(graph, DType::bf16);
  add_gradients(graph);
  gather_casts(graph, kCan);
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<CastMany>(graph) >= 3);  // "c" and "b" have more than six million weights each
}

TEST_CASE("a backend that casts one by one keeps its casts") {
  Graph graph = lowered_net();
  const size_t nodes = graph.nodes.size();
  CHECK(gather_casts(graph, FakeBackend()) == 0);
  CHECK(graph.nodes.size() == nodes);
  CHECK(count_nodes<CastMany>(graph) == 0);
}
