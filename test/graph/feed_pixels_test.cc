#include "graph/passes/rewrite.h"
#include "lockstep/graph/executable.h"
#include "lockstep/ops/pixels.h"
#include "test/catch.h"
#include "test/graph/fake_backend.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Graph net() {
  ModelOptions options = float_options();
  return block_net(options);
}

int64_t external_values(const Graph& graph, ExternalInput input) {
  return std::ranges::count_if(graph.values,
                               [&](const Value& v) { return v.role == ValueRole::external && v.external == input; });
}

}  // namespace

TEST_CASE("a graph fed with bytes makes its images of them first, in the type of its layers") {
  for (const bool changes : {false, true}) {
    Graph graph = net();
    const Shape images = graph.value(graph.nodes.front().inputs[0]).desc.shape;
    const size_t nodes = graph.nodes.size();
    REQUIRE(feed_pixels(graph, {.changes = changes}, DType::bf16));
    CHECK(is_well_formed(graph));
    CHECK(graph.nodes.size() == nodes + 1);
    CHECK(external_values(graph, ExternalInput::images) == 0);
    CHECK(external_values(graph, ExternalInput::pixels) == 1);
    CHECK(external_values(graph, ExternalInput::changes) == (changes ? 1 : 0));
    const Node& first = graph.nodes.front();
    REQUIRE(std::holds_alternative<PreparePixels>(first.op));
    CHECK(std::get<PreparePixels>(first.op).to == DType::bf16);
    CHECK(graph.value(first.inputs[0]).desc.shape == Shape{images.n(), images.h(), images.w(), 3});
    CHECK(graph.value(first.outputs[0]).desc == TensorDesc{images, DType::bf16, {}});
  }
}

TEST_CASE("no cast stands between the bytes and the layers of lower precision") {
  const auto casts = [](const std::optional<PreparePixels>& pixels) {
    return count_nodes<Cast>(
        Executable::compile(net(), FakeBackend(), {.compute = DType::bf16, .pixels = pixels}).graph());
  };
  CHECK(casts(PreparePixels{}) == casts({}) - 1);
}

TEST_CASE("a graph without images stays as it is") {
  Graph graph;
  CHECK_FALSE(feed_pixels(graph, {}, DType::f32));
  CHECK(graph.nodes.empty());
  CHECK(graph.values.empty());
}
