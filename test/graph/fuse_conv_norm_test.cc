#include <map>

#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "lockstep/graph/moments.h"
#include "test/catch.h"
#include "test/graph/fake_backend.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// stem - one - two - max pool - three - head, each a convolution with norm and ReLU; "bias" has a bias and no norm.
Graph chain_net(const ModelOptions& options) {
  ModelBuilder b(options);
  ValueId x = b.conv_norm_relu(b.images(), "stem", {.channels = 8, .window = kThree});
  x = b.conv_norm_relu(x, "one", {.channels = 16});
  x = b.conv_norm_relu(x, "two", {.channels = 8, .window = kThree});
  x = b.conv_norm_relu(b.max_pool(x, "pool", kThree), "three", {.channels = 8});
  x = b.relu(b.conv(x, "bias", {.channels = 8, .bias = true}), "bias.relu");
  const ValueId row = b.flatten(b.global_avg_pool(x, "avgpool"), "flatten");
  b.loss(b.linear(row, "fc", {.outputs = options.classes}), "loss", 1.0);
  return std::move(b).finish();
}

Graph prepared(Graph graph) {
  fuse_norm_relu(graph);
  add_gradients(graph);
  return graph;
}

template <class... Fused>
FakeBackend backend_with() {
  return FakeBackend({.can = [](const Op& op) { return (std::holds_alternative<Fused>(op) || ...); }});
}

int normalized_convolutions(const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(graph.nodes, [](const Node& node) {
    const auto* conv = std::get_if<Conv2dStatistics>(&node.op);
    return conv && conv->normalized;
  }));
}

}  // namespace

TEST_CASE("a backend that can nothing gets the graph that it had") {
  Graph graph = prepared(chain_net(small_options()));
  const size_t nodes = graph.nodes.size();
  CHECK(fuse_conv_norm(graph, FakeBackend()) == 0);
  CHECK(graph.nodes.size() == nodes);
  CHECK(is_well_formed(graph));
}

TEST_CASE("convolutions sum for the norms behind them, and the moments come with the vectors") {
  Graph graph = prepared(chain_net(small_options()));
  // Of a convolution that reads the images as they are.
  const FakeBackend backend({.can = [](const Op& op) {
    const auto* conv = std::get_if<Conv2dStatistics>(&op);
    return conv && !conv->normalized;
  }});
  CHECK(fuse_conv_norm(graph, backend) == 4);
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<Conv2dStatistics>(graph) == 4);
  CHECK(normalized_convolutions(graph) == 0);
  CHECK(count_nodes<BatchNormOfSums>(graph) == 4);
  CHECK(count_nodes<BatchNormOfSumsGrad>(graph) == 4);
  CHECK(count_nodes<BatchNormInference>(graph) == 4);
  CHECK(count_nodes<BatchNorm>(graph) + count_nodes<BatchNormGrad>(graph) + count_nodes<BatchMoments>(graph) == 0);
  CHECK(count_nodes<Conv2d>(graph) == 1);  // the one with a bias
  const Node* vectors = find_node(graph, "one.bn.vectors");
  REQUIRE(vectors);
  for (const size_t moment : {6, 7}) CHECK(graph.value(vectors->outputs[moment]).moment_of >= 0);
}

TEST_CASE("convolutions read the image before a norm where nothing else reads the norm") {
  Graph graph = prepared(chain_net(small_options()));
  fuse_conv_norm(graph, backend_with<Conv2dStatistics, Conv2dNormalizedGradWeights>());
  CHECK(is_well_formed(graph));
  CHECK(normalized_convolutions(graph) == 2);                   // one and two
  CHECK(count_nodes<Conv2dNormalizedGradWeights>(graph) == 2);  // the pool reads the norm of two, "bias" that of three
  const auto readers = readers_of(graph);
  CHECK(readers[static_cast<size_t>(find_value(graph, "stem.relu"))].empty());
  CHECK(readers[static_cast<size_t>(find_value(graph, "one.relu"))].empty());
  CHECK_FALSE(readers[static_cast<size_t>(find_value(graph, "two.relu"))].empty());
  const Schedule schedule = make_schedule(graph);
  for (const NodeId n : schedule.order) {
    CHECK(graph.node(n).name != "stem.bn");
    CHECK(graph.node(n).name != "one.bn");
  }
}

TEST_CASE("without one of the two a norm with one reader is computed") {
  Graph graph = prepared(chain_net(small_options()));
  fuse_conv_norm(graph, backend_with<Conv2dStatistics>());
  CHECK(is_well_formed(graph));
  CHECK(normalized_convolutions(graph) == 0);
  CHECK_FALSE(readers_of(graph)[static_cast<size_t>(find_value(graph, "one.relu"))].empty());
}

TEST_CASE("a gradient by input sums for the norm that it alone reaches") {
  Graph graph = prepared(chain_net(small_options()));
  fuse_conv_norm(graph, backend_with<Conv2dStatistics, Conv2dGradInputNorm>());
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<Conv2dGradInputNorm>(graph) == 3);  // of one, of two, and of the one with a bias
  CHECK(count_nodes<BatchNormGradApply>(graph) == 3);
  CHECK(count_nodes<BatchNormOfSumsGrad>(graph) == 1);  // of two, which the pool's gradient reaches
}

TEST_CASE("norms of slices have their sums from the merged convolution") {
  ModelOptions options = small_options();
  Graph graph = block_net(options);
  merge_siblings(graph);
  graph = prepared(std::move(graph));
  fuse_conv_norm(graph, backend_with<Conv2dStatistics, Conv2dNormalizedGradWeights, Conv2dGradInputNorm>());
  CHECK(is_well_formed(graph));
  std::vector<int64_t> begins;
  for (const Node& node : graph.nodes) {
    if (const auto* vectors = std::get_if<BatchNormOfSums>(&node.op)) begins.push_back(vectors->begin);
  }
  CHECK(std::ranges::count_if(begins, [](int64_t begin) { return begin > 0; }) >= 1);
}

TEST_CASE("a fused network computes what it computes otherwise") {
  const auto reference = make_backend("reference", {.threads = 1});
  for (const auto& build : {chain_net, block_net, small_net}) {
    Net fused(*reference, build(small_options()), {});
    Net plain(*reference, build(small_options()), {.rewrites = false});
    CHECK(matches_of(fused.executable(), "fuse_conv_norm") > 0);
    CHECK(worst_error(fused, plain) < 1e-9);
  }
}

TEST_CASE("a fused network leaves the moments that it leaves otherwise") {
  const auto reference = make_backend("reference", {.threads = 1});
  for (const auto& build : {chain_net, block_net, small_net}) {
    Net fused(*reference, build(small_options()), {});
    Net plain(*reference, build(small_options()), {.rewrites = false});
    std::map<ParameterId, std::vector<double>> moments[2];
    std::map<ParameterId, NormMoments> norms[2];
    for (Net* net : {&fused, &plain}) {
      net->fill_at_random(3);
      net->forward();
      const bool is_plain = net == &plain;
      for (ValueId v = 0; v < static_cast<ValueId>(net->graph().values.size()); ++v) {
        const Value& value = net->graph().value(v);
        if (value.moment_of >= 0) moments[is_plain][value.moment_of] = net->value(v);
      }
      for (const NormMoments& norm : moments_of(net->graph())) norms[is_plain][norm.mean] = norm;
    }
    CHECK(norms[0] == norms[1]);
    REQUIRE(moments[0].size() == moments[1].size());
    for (const auto& [statistic, values] : moments[1]) {
      CHECK(relative_error(moments[0].at(statistic), values) < 1e-10);
    }
  }
}

TEST_CASE("random nets stay well formed and compute the same when they are fused") {
  const auto reference = make_backend("reference", {.threads = 1});
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const ModelOptions options{.batch_size = 2, .image_size = 4, .classes = 3, .dtype = DType::f64};
    Net fused(*reference, random_net(seed, options), {});
    Net plain(*reference, random_net(seed, options), {.rewrites = false});
    INFO("seed " << seed);
    CHECK(worst_error(fused, plain) < 1e-8);
  }
}

TEST_CASE("a norm whose convolution cannot sum has its vectors and moments from the image") {
  Graph graph = prepared(chain_net(small_options()));
  CHECK(fuse_conv_norm(graph, backend_with<BatchNormStatistics>()) == 0);
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<BatchNormStatistics>(graph) == 4);
  CHECK(count_nodes<BatchNorm>(graph) + count_nodes<BatchMoments>(graph) + count_nodes<Conv2dStatistics>(graph) == 0);
  CHECK(count_nodes<Conv2d>(graph) == 5);
}

TEST_CASE("a max pool that alone reads a norm normalizes its image, and so does its gradient") {
  Graph graph = prepared(chain_net(small_options()));
  fuse_conv_norm(graph, backend_with<BatchNormStatistics, BatchNormMaxPool>());
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<BatchNormMaxPool>(graph) == 1);
  CHECK(count_nodes<BatchNormMaxPoolGrad>(graph) == 1);
  CHECK(count_nodes<MaxPool>(graph) + count_nodes<MaxPoolGrad>(graph) == 0);
  CHECK(count_nodes<BatchNormInference>(graph) == 3);
}

TEST_CASE("a max pool of what others read as well stays apart") {
  Graph graph = prepared(small_net(small_options()));  // the pools read the stem, as others do, and a concatenation
  const int pools = count_nodes<MaxPool>(graph);
  fuse_conv_norm(graph, backend_with<BatchNormStatistics, BatchNormMaxPool>());
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<MaxPool>(graph) == pools);
}

TEST_CASE("the gradient of a max pool adds the other gradients of its image") {
  Graph graph = prepared(block_net(small_options()));
  const int sums = count_nodes<Add>(graph), pools = count_nodes<MaxPoolGrad>(graph);
  CHECK(sum_into_pool(graph, FakeBackend()) == 0);
  CHECK(sum_into_pool(graph, backend_with<MaxPoolGradSum>()) == 1);
  CHECK(is_well_formed(graph));
  CHECK(count_nodes<Add>(graph) == sums - 1);
  CHECK(count_nodes<MaxPoolGrad>(graph) == pools - 1);
}

TEST_CASE("the cpu backend fuses nothing") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  ModelOptions options = float_options();
  const Executable e = Executable::compile(chain_net(options), *cpu, {});
  CHECK(matches_of(e, "fuse_conv_norm") == 0);
}
