#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct Drawn {
  ModelBuilder b{ModelOptions{.batch_size = 2, .image_size = 4, .classes = 3}};
  ValueId norm = b.batch_norm(b.conv(b.images(), "conv", {.channels = 4}), "bn");
  ValueId relu = b.relu(norm, "relu");
  Graph finish(ValueId last) {
    b.loss(b.linear(b.flatten(last, "flatten"), "fc", {.outputs = 3}), "loss", 1.0);
    return std::move(b).finish();
  }
};

const BatchNorm& norm_of(const Graph& graph) { return std::get<BatchNorm>(find_node(graph, "bn")->op); }

}  // namespace

TEST_CASE("batch norm and the ReLU that alone reads it become one operation") {
  Drawn d;
  Graph graph = d.finish(d.relu);
  const auto parameters = static_cast<size_t>(graph.parameters.size());
  CHECK(fuse_norm_relu(graph) == 1);
  CHECK(norm_of(graph).relu);
  CHECK(count_nodes<Relu>(graph) == 0);
  CHECK(find_node(graph, "bn")->outputs[0] == d.relu);
  CHECK(find_node(graph, "flatten")->inputs[0] == d.relu);
  CHECK(static_cast<size_t>(graph.parameters.size()) == parameters);
  CHECK(is_well_formed(graph));
  CHECK(fuse_norm_relu(graph) == 0);
}

TEST_CASE("a batch norm with another reader stays as it is") {
  Drawn d;
  Graph graph = d.finish(d.b.concat({d.relu, d.norm}, "cat"));
  CHECK(fuse_norm_relu(graph) == 0);
  CHECK_FALSE(norm_of(graph).relu);
  CHECK(count_nodes<Relu>(graph) == 1);
}

TEST_CASE("a batch norm whose output the caller reads stays as it is") {
  Drawn d;
  Graph graph = d.finish(d.relu);
  graph.value(d.norm).kept = true;
  CHECK(fuse_norm_relu(graph) == 0);
}

TEST_CASE("batch norm in evaluation is fused too") {
  ModelOptions options = small_options();
  options.training = false;
  Graph graph = small_net(options);
  CHECK(fuse_norm_relu(graph) == 3);
  CHECK(is_well_formed(graph));
  for (const char* name : {"stem.bn", "left.bn", "pooled.bn"}) {
    CHECK(std::get<BatchNormInference>(find_node(graph, name)->op).relu);
  }
  CHECK_FALSE(std::get<BatchNormInference>(find_node(graph, "tail.bn")->op).relu);
}

TEST_CASE("random nets stay well formed") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Graph graph = random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3});
    fuse_norm_relu(graph);
    INFO("seed " << seed);
    CHECK(is_well_formed(graph));
    CHECK_NOTHROW(add_gradients(graph));
    CHECK(is_well_formed(graph));
  }
}

TEST_CASE("fusing changes neither outputs nor gradients") {
  const auto backend = make_backend("reference", {.threads = 1});
  for (const bool fixed_scale : {false, true}) {
    ModelOptions options = small_options();
    options.bn_scale = !fixed_scale;
    Net fused(*backend, small_net(options), {});
    Net plain(*backend, small_net(options), {.rewrites = false});
    REQUIRE(matches_of(fused.executable(), "fuse_norm_relu") == 3);
    for (Net* net : {&fused, &plain}) {
      net->fill_at_random(1);
      net->forward();
      net->backward();
    }
    CHECK(fused.loss() == Approx(plain.loss()).epsilon(1e-13));
    for (size_t h = 0; h < 2; ++h) {
      const auto logits = plain.value(plain.graph().losses[h].logits);
      CHECK(relative_error(fused.value(fused.graph().losses[h].logits), logits) < 1e-13);
    }
    CHECK(worst_gradient_error(fused, plain) < 1e-9);
  }
}

TEST_CASE("fusing changes no evaluation") {
  const auto backend = make_backend("reference", {.threads = 1});
  ModelOptions options = small_options();
  options.training = false;
  Net fused(*backend, small_net(options), {.training = false});
  Net plain(*backend, small_net(options), {.rewrites = false, .training = false});
  for (Net* net : {&fused, &plain}) {
    net->fill_at_random(2);
    net->forward();
  }
  const auto logits = plain.value(plain.graph().losses[0].logits);
  CHECK(relative_error(fused.value(fused.graph().losses[0].logits), logits) < 1e-13);
}
