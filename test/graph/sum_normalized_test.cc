#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "test/catch.h"
#include "test/graph/fake_backend.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

ModelOptions fixed_scales() {
  ModelOptions options = small_options();
  options.bn_scale = false;
  return options;
}

ValueId block(ModelBuilder& b, ValueId x, const std::string& name) {
  const ValueId one = b.conv_norm_relu(x, name + ".one", {.channels = 16});
  const ValueId two = b.conv_norm_relu(x, name + ".two_1", {.channels = 32});
  const ValueId pooled = b.conv_norm_relu(b.avg_pool(x, name + ".avg", kThree), name + ".pooled", {.channels = 16});
  return b.concat({one, b.conv_norm_relu(two, name + ".two_2", {.channels = 48, .window = kThree}), pooled}, name);
}

// Two blocks, of which the second's convolutions alone read the first; several layers read the second.
Graph blocks_net(const ModelOptions& options) {
  ModelBuilder b(options);
  ValueId x = b.conv_norm_relu(b.images(), "stem", {.channels = 32, .window = kThree});
  x = block(b, block(b, x, "a"), "b");
  const ValueId last = b.conv_norm_relu(x, "last", {.channels = 16, .window = kThree});
  const ValueId row = b.flatten(b.global_avg_pool(b.concat({last, x}, "all"), "avgpool"), "flatten");
  b.loss(b.linear(row, "fc", {.outputs = options.classes}), "loss", 1.0);
  return std::move(b).finish();
}

// As for a backend that reads slices.
Graph merged(Graph graph) {
  hoist_pointwise(graph);
  merge_siblings(graph);
  return graph;
}

template <class... Fused>
Graph summed(const ModelOptions& options) {
  Graph graph = merged(blocks_net(options));
  fuse_norm_relu(graph);
  add_gradients(graph);
  const FakeBackend backend({.can = [](const Op& op) { return (std::holds_alternative<Fused>(op) || ...); }});
  fuse_conv_norm(graph, backend);
  sum_normalized(graph, backend);
  CHECK(is_well_formed(graph));
  return graph;
}

}  // namespace

TEST_CASE("one kernel sums for the gradients of all norms of a concatenation") {
  const Graph graph = summed<BatchNormStatistics, BatchNormGradSums>(fixed_scales());
  CHECK(count_nodes<BatchNormGradSums>(graph) == 2);
  CHECK(count_nodes<BatchNormGradOfSums>(graph) == 6);
  CHECK(count_nodes<BatchNormOfSumsGrad>(graph) == 4);  // stem, last, and before the second convolutions of branches
  const Node* sums = nullptr;
  for (const Node& node : graph.nodes) sums = std::holds_alternative<BatchNormGradSums>(node.op) ? &node : sums;
  REQUIRE(sums);
  const Value& dshift = graph.value(sums->outputs[0]);
  const auto parts = parameters_in(graph, dshift.gradient_of, dshift.desc.shape);
  CHECK(parts.size() == 3);
  CHECK(graph.parameters[parts[1]].name == "a.two_2.bn.bias");
}

TEST_CASE("a gradient by input sums for a slice and for a concatenation") {
  const Graph graph = summed<BatchNormStatistics, BatchNormGradSums, Conv2dGradInputNorm>(fixed_scales());
  CHECK(count_nodes<BatchNormGradSums>(graph) == 1);    // of the second block, whose gradient is a sum
  CHECK(count_nodes<BatchNormGradOfSums>(graph) == 8);  // of both blocks and of two slices
  CHECK(count_nodes<Conv2dGradInputNorm>(graph) == 4);  // and of the stem
  CHECK(count_nodes<BatchNormOfSumsGrad>(graph) == 1);  // the last
}

namespace {

// A norm before a max pool, and a block that a convolution and a max pool read.
Graph pools_net(const ModelOptions& options) {
  ModelBuilder b(options);
  ValueId x = b.conv_norm_relu(b.images(), "stem", {.channels = 32, .window = kThree});
  x = block(b, b.max_pool(x, "pool", kHalve), "a");
  const ValueId left = b.conv_norm_relu(x, "left", {.channels = 16, .window = kHalve});
  const ValueId right = b.conv_norm_relu(x, "right", {.channels = 32, .window = kHalve});
  x = b.concat({b.max_pool(x, "max", kHalve), left, right}, "all");
  const ValueId row = b.flatten(b.global_avg_pool(x, "avgpool"), "flatten");
  b.loss(b.linear(row, "fc", {.outputs = options.classes}), "loss", 1.0);
  return std::move(b).finish();
}

}  // namespace

TEST_CASE("norms around max pools have their sums from what was pooled, and from the pool's gradient") {
  const auto reference = make_backend("reference", {.threads = 1});
  Net summed(*reference, merged(pools_net(fixed_scales())), {});
  Net plain(*reference, pools_net(fixed_scales()), {.rewrites = false});
  CHECK(count_nodes<BatchNormMaxPoolGradOfSums>(summed.graph()) == 1);
  CHECK(count_nodes<MaxPoolGradNormSums>(summed.graph()) == 1);
  CHECK(count_nodes<BatchNormGradSums>(summed.graph()) == 1);    // of a part of a concatenation
  CHECK(count_nodes<BatchNormGradOfSums>(summed.graph()) == 6);  // the block's ends, a slice, and those of the part
  CHECK(worst_error(summed, plain) < 1e-9);
}

TEST_CASE("norms whose scale is trained, and backends that cannot, keep their gradients") {
  ModelOptions trained = fixed_scales();
  trained.bn_scale = true;
  const Graph with_scales = summed<BatchNormStatistics, BatchNormGradSums, Conv2dGradInputNorm>(trained);
  CHECK(count_nodes<BatchNormGradOfSums>(with_scales) == 0);
  const Graph without = summed<BatchNormStatistics>(fixed_scales());
  CHECK(count_nodes<BatchNormGradOfSums>(without) == 0);
  CHECK(without.adjacent_parameters.size() == 2);  // weights alone
}

TEST_CASE("a network whose gradients are summed from normalized images computes what it computes otherwise") {
  const auto reference = make_backend("reference", {.threads = 1});
  for (const bool merges : {false, true}) {
    ModelOptions options = fixed_scales();
    if (!merges) options.freeze = {"a.one"};  // normalizes with its running statistics then, beside two that do not
    const Graph graph = blocks_net(options);
    Net summed(*reference, merges ? merged(graph) : graph, {});
    Net plain(*reference, blocks_net(options), {.rewrites = false});
    CHECK(matches_of(summed.executable(), "sum_normalized") == (merges ? 8 : 5));
    CHECK(worst_error(summed, plain) < 1e-9);
  }
}
