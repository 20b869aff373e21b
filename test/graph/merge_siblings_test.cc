#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("convolutions of one window on one value become one with the weights side by side") {
  Graph graph = block_net(small_options());
  const ValueId x = find_node(graph, "one.conv")->inputs[0];
  const ValueId one = find_node(graph, "one.conv")->outputs[0], two = find_node(graph, "two_1.conv")->outputs[0];
  CHECK(merge_siblings(graph) == 1);
  const Node& merged = *find_node(graph, "one.conv.merged");
  CHECK(merged.inputs[0] == x);
  CHECK(graph.value(merged.inputs[1]).desc.shape == Shape{48, 32, 1, 1});
  CHECK(graph.value(merged.outputs[0]).desc.shape == Shape{3, 48, 9, 9});
  const auto slice = [&](const char* name) { return std::get<Slice>(find_node(graph, name)->op); };
  CHECK((slice("one.conv").begin == 0 && slice("one.conv").count == 16));
  CHECK((slice("two_1.conv").begin == 16 && slice("two_1.conv").count == 32));
  CHECK(find_node(graph, "one.conv")->outputs[0] == one);
  CHECK(find_node(graph, "two_1.conv")->outputs[0] == two);
  CHECK(graph.adjacent_parameters ==
        std::vector<std::vector<ParameterId>>{
            {graph.parameters.find("one.conv.weight"), graph.parameters.find("two_1.conv.weight")}});
  CHECK(is_well_formed(graph));
  CHECK(merge_siblings(graph) == 0);
}

TEST_CASE("a hoisted convolution is a sibling, too") {
  Graph graph = block_net(small_options());
  hoist_pointwise(graph);
  CHECK(merge_siblings(graph) == 1);
  CHECK(graph.adjacent_parameters[0].size() == 3);
}

TEST_CASE("convolutions with a bias, groups, an odd number of channels or another window stay apart") {
  const auto merged = [](const ModelBuilder::Conv& second) {
    ModelBuilder b(small_options());
    const ValueId x = b.conv(b.images(), "stem", {.channels = 16});
    const std::vector<ValueId> both{b.conv(x, "a", {.channels = 16}), b.conv(x, "b", second)};
    b.loss(b.linear(b.flatten(b.concat(both, "cat"), "flatten"), "fc", {.outputs = 4}), "loss", 1.0);
    Graph graph = std::move(b).finish();
    return merge_siblings(graph);
  };
  CHECK(merged({.channels = 32}) == 1);
  CHECK(merged({.channels = 16, .bias = true}) == 0);
  CHECK(merged({.channels = 16, .groups = 2}) == 0);
  CHECK(merged({.channels = 20}) == 0);
  CHECK(merged({.channels = 16, .window = kThree}) == 0);
}

TEST_CASE("siblings that training changes are not merged with one that it keeps") {
  Graph graph = block_net(small_options());
  graph.parameters.set_zero_rate(graph.parameters.find("one.conv.weight"));
  CHECK(merge_siblings(graph) == 0);
  graph.parameters.set_zero_rate(graph.parameters.find("two_1.conv.weight"));
  CHECK(merge_siblings(graph) == 1);
}

TEST_CASE("merged siblings' parameters lie side by side in the arenas, in training and in evaluation") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  ModelOptions options = float_options();
  Net train(*cpu, block_net(options), {});
  const Executable& e = train.executable();
  REQUIRE(matches_of(e, "merge_siblings") == 1);
  const auto offset = [&](const char* name) {
    return e.layout().offset[static_cast<size_t>(e.graph().parameters.find(name))];
  };
  CHECK(offset("two_1.conv.weight") == offset("one.conv.weight") + 16 * 32);
  CHECK(offset("pooled.conv.weight") == offset("two_1.conv.weight") + 32 * 32);
  train.fill_at_random(1);
  options.training = false;
  Net evaluation(train, block_net(options));
  CHECK(evaluation.parameter("two_1.conv.weight") == train.parameter("two_1.conv.weight"));
}

TEST_CASE("a layout that leaves siblings apart is refused") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  ModelOptions options = float_options();
  const Graph graph = block_net(options);
  std::vector<ParameterId> order = trained_in_table_order(graph.parameters);
  std::ranges::reverse(order);
  const ParameterLayout layout = lay_out_parameters(graph.parameters, order);
  CHECK_THROWS_WITH(Executable::compile(graph, *cpu, {.layout = &layout}), ContainsSubstring("does not lie beside"));
}

TEST_CASE("merge_siblings changes neither outputs nor gradients") {
  const auto backend = make_backend("reference", {.threads = 1});
  Graph graph = block_net(small_options());
  REQUIRE(merge_siblings(graph) > 0);
  Net rewritten(*backend, std::move(graph), {.rewrites = false});
  Net plain(*backend, block_net(small_options()), {.rewrites = false});
  CHECK(worst_error(rewritten, plain) < 1e-9);
}

TEST_CASE("merge_siblings leaves random nets well formed") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Graph graph = random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3});
    merge_siblings(graph);
    INFO("seed " << seed);
    CHECK(is_well_formed(graph));
    CHECK_NOTHROW(add_gradients(graph));
    CHECK(is_well_formed(graph));
  }
}
