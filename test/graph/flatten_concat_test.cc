#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("a concatenation of concatenations becomes one") {
  Graph graph = block_net(small_options());
  const auto inner = find_node(graph, "two")->inputs;
  const auto outer = find_node(graph, "cat")->inputs;
  CHECK(flatten_concat(graph) == 1);
  CHECK(count_nodes<Concat>(graph) == 1);
  CHECK(find_node(graph, "cat")->inputs == std::vector<ValueId>{outer[0], inner[0], inner[1], outer[2], outer[3]});
  CHECK(is_well_formed(graph));
  CHECK(flatten_concat(graph) == 0);
}

TEST_CASE("a concatenation that somebody else reads stays") {
  ModelBuilder b(small_options());
  const ValueId x = b.conv(b.images(), "conv", {.channels = 4});
  const ValueId inner = b.concat({x, x}, "inner");
  const ValueId outer = b.concat({inner, b.relu(inner, "relu")}, "outer");
  b.loss(b.linear(b.flatten(outer, "flatten"), "fc", {.outputs = 4}), "loss", 1.0);
  Graph graph = std::move(b).finish();
  CHECK(flatten_concat(graph) == 0);
  CHECK(count_nodes<Concat>(graph) == 2);
}

TEST_CASE("flatten_concat changes neither outputs nor gradients") {
  const auto backend = make_backend("reference", {.threads = 1});
  Graph graph = block_net(small_options());
  REQUIRE(flatten_concat(graph) > 0);
  Net rewritten(*backend, std::move(graph), {.rewrites = false});
  Net plain(*backend, block_net(small_options()), {.rewrites = false});
  CHECK(worst_error(rewritten, plain) < 1e-9);
}

TEST_CASE("flatten_concat leaves random nets well formed") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Graph graph = random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3});
    flatten_concat(graph);
    INFO("seed " << seed);
    CHECK(is_well_formed(graph));
    CHECK_NOTHROW(add_gradients(graph));
    CHECK(is_well_formed(graph));
  }
}
