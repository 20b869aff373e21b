#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("a 1x1 convolution goes before the average pool that it alone reads") {
  Graph graph = block_net(small_options());
  const ValueId x = find_node(graph, "avg")->inputs[0], y = find_node(graph, "pooled.conv")->outputs[0];
  CHECK(hoist_pointwise(graph) == 1);
  const Node &conv = *find_node(graph, "pooled.conv"), &pool = *find_node(graph, "avg");
  CHECK(std::holds_alternative<Conv2d>(conv.op));
  CHECK(conv.inputs[0] == x);
  CHECK(graph.value(conv.inputs[1]).name == "pooled.conv.weight");
  CHECK(pool.inputs == conv.outputs);
  CHECK(pool.outputs[0] == y);
  CHECK(graph.value(conv.outputs[0]).desc.shape == graph.value(y).desc.shape);
  CHECK(is_well_formed(graph));
  CHECK(hoist_pointwise(graph) == 0);
}

namespace {

// What hoist_pointwise does to a pool and a convolution.
int hoisted(const Window& pool, const ModelBuilder::Conv& conv, bool pool_read_twice = false) {
  ModelBuilder b(small_options());
  const ValueId x = b.conv(b.images(), "first", {.channels = 8});
  const ValueId pooled = b.avg_pool(x, "avg", pool);
  const ValueId y = b.conv(pooled, "second", conv);
  std::vector<ValueId> read{y};
  if (pool_read_twice) read.push_back(pooled);
  b.loss(b.linear(b.flatten(b.concat(read, "cat"), "flatten"), "fc", {.outputs = 4}), "loss", 1.0);
  Graph graph = std::move(b).finish();
  return hoist_pointwise(graph);
}

}  // namespace

TEST_CASE("a convolution stays behind its pool where that is not the same or costs more") {
  CHECK(hoisted(kThree, {.channels = 4}) == 1);
  CHECK(hoisted(kThree, {.channels = 8}) == 0);                    // pools as many channels
  CHECK(hoisted(kThree, {.channels = 4, .bias = true}) == 0);      // the padding would not get the bias
  CHECK(hoisted(kThree, {.channels = 4, .window = kThree}) == 0);  // sees several pixels
  CHECK(hoisted(kHalve, {.channels = 4}) == 0);                    // would convolve a larger image
  CHECK(hoisted(kThree, {.channels = 4}, true) == 0);
}

TEST_CASE("hoist_pointwise changes neither outputs nor gradients") {
  const auto backend = make_backend("reference", {.threads = 1});
  Graph graph = block_net(small_options());
  REQUIRE(hoist_pointwise(graph) > 0);
  Net rewritten(*backend, std::move(graph), {.rewrites = false});
  Net plain(*backend, block_net(small_options()), {.rewrites = false});
  CHECK(worst_error(rewritten, plain) < 1e-9);
}

TEST_CASE("hoist_pointwise leaves random nets well formed") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Graph graph = random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3});
    hoist_pointwise(graph);
    INFO("seed " << seed);
    CHECK(is_well_formed(graph));
    CHECK_NOTHROW(add_gradients(graph));
    CHECK(is_well_formed(graph));
  }
}
