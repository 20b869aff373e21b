
#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Graph differentiated(Graph graph) {
  add_gradients(graph);
  return graph;
}

// Whether a backward node reads an output 0 of a forward node of this kind.
template <class OpType>
bool read_backward(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::forward) continue;
    for (ValueId input : node.inputs) {
      const NodeId maker = graph.value(input).producer;
      if (maker < 0 || graph.node(maker).phase == Phase::backward || graph.node(maker).outputs[0] != input) continue;
      if (std::holds_alternative<OpType>(graph.node(maker).op)) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("normalized activations, concatenated or not, are made again where the backward pass reads them") {
  Graph graph = block_net(small_options());
  fuse_norm_relu(graph);
  graph = differentiated(std::move(graph));
  REQUIRE(read_backward<BatchNorm>(graph));
  REQUIRE(read_backward<Concat>(graph));
  const size_t before = graph.nodes.size();
  const int twice = recompute(graph, false);
  CHECK(count_nodes<BatchNormInference>(graph) > 0);
  CHECK(graph.nodes.size() == before + twice);
  CHECK_FALSE(read_backward<BatchNorm>(graph));
  CHECK_FALSE(read_backward<Concat>(graph));
  CHECK(is_well_formed(graph));
}

TEST_CASE("a pool of a slice, which others keep, is made again, and another pool is not") {
  const auto pools_again = [](Graph graph) {
    graph = differentiated(std::move(graph));
    recompute(graph, false);
    CHECK(is_well_formed(graph));
    return std::ranges::count_if(graph.nodes, [](const Node& node) {
      return node.phase == Phase::backward && std::holds_alternative<AvgPool>(node.op);
    });
  };
  Graph graph = block_net(small_options());
  CHECK(pools_again(graph) == 0);
  hoist_pointwise(graph);
  CHECK(pools_again(graph) == 0);
  merge_siblings(graph);
  CHECK(pools_again(graph) == 1);
}

TEST_CASE("random nets stay well formed when norms are made again") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Graph graph = differentiated(random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3}));
    recompute(graph, seed % 2 == 0);
    INFO("seed " << seed);
    CHECK(is_well_formed(graph));
  }
}

TEST_CASE("making norms again changes no bit and saves memory") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  ModelOptions options = float_options();
  if (GENERATE(false, true)) options.freeze_batch_norm = {"*"};
  Net again(*cpu, block_net(options), {});
  Net kept(*cpu, block_net(options), {.recompute = false});
  REQUIRE(matches_of(again.executable(), "recompute") > 0);
  CHECK(matches_of(kept.executable(), "recompute") == -1);
  CHECK(again.executable().plan().activation_bytes < kept.executable().plan().activation_bytes);
  CHECK(worst_error(again, kept) == 0);
}

TEST_CASE("convolutions computed again change no bit and save more memory") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  ModelOptions options = float_options();
  if (GENERATE(false, true)) options.freeze_batch_norm = {"*"};
  Net again(*cpu, block_net(options), {.recompute_convolutions = true});
  Net norms(*cpu, block_net(options), {});
  REQUIRE(matches_of(again.executable(), "recompute") > matches_of(norms.executable(), "recompute"));
  CHECK(again.executable().plan().activation_bytes < norms.executable().plan().activation_bytes);
  CHECK(worst_error(again, norms) == 0);
}
