#include "lockstep/graph/model_builder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "test/catch.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const Parameter& parameter(const Graph& graph, const std::string& name) {
  const ParameterId id = graph.parameters.find(name);
  INFO(name);
  REQUIRE(id >= 0);
  return graph.parameters[id];
}

}  // namespace

TEST_CASE("layers declare their parameters with torchvision's names, shapes and kinds") {
  const Graph graph = small_net(small_options());
  CHECK(parameter(graph, "stem.conv.weight").shape == Shape{6, 3, 3, 3});
  CHECK(parameter(graph, "stem.conv.weight").kind == ParameterKind::weight);
  CHECK(parameter(graph, "stem.conv.weight").init.kind == Initializer::Kind::truncated_normal);
  CHECK(graph.parameters.find("stem.conv.bias") == -1);
  CHECK(parameter(graph, "stem.bn.weight").kind == ParameterKind::norm_scale);
  CHECK(parameter(graph, "stem.bn.weight").init.value == 1);
  CHECK(parameter(graph, "stem.bn.bias").kind == ParameterKind::norm_shift);
  CHECK(parameter(graph, "stem.bn.running_mean").kind == ParameterKind::running_mean);
  CHECK(parameter(graph, "stem.bn.running_var").kind == ParameterKind::running_var);
  CHECK(parameter(graph, "stem.bn.running_var").init.value == 1);
  CHECK(parameter(graph, "right.bias").shape == Shape{5});
  CHECK(parameter(graph, "right.bias").kind == ParameterKind::bias);
  CHECK(parameter(graph, "fc2.weight").shape == Shape{4, 7});
  CHECK(parameter(graph, "fc2.bias").shape == Shape{4});
}

TEST_CASE("without bn_scale the scale stays in the table but is not trained") {
  ModelOptions options = small_options();
  options.bn_scale = false;
  const Graph graph = small_net(options);
  CHECK(parameter(graph, "stem.bn.weight").kind == ParameterKind::fixed_scale);
  CHECK_FALSE(parameter(graph, "stem.bn.weight").trained());
  CHECK(graph.value(find_value(graph, "stem.bn.weight")).role == ValueRole::statistic);
}

TEST_CASE("frozen parameters are not trained, and a batch norm without trained ones keeps its statistics") {
  ModelOptions options = small_options();
  options.freeze = {"stem", "fc1.weight"};
  options.freeze_batch_norm = {"pooled*"};
  for (const bool training : {true, false}) {
    options.training = training;
    const Graph graph = small_net(options);
    for (const Parameter& p : graph.parameters.all()) {
      INFO(p.name);
      const bool norm = p.name.starts_with("pooled.bn.running_");
      CHECK(p.frozen == (p.name.starts_with("stem.") || p.name == "fc1.weight" || norm));
      const bool trained = !p.frozen && p.kind <= ParameterKind::norm_shift;
      CHECK((graph.value(find_value(graph, p.name)).role == ValueRole::parameter) == trained);
    }
    CHECK(count_nodes<BatchNormInference>(graph) == (training ? 2 : 4));
    CHECK(count_nodes<BatchMoments>(graph) == (training ? 2 : 0));
  }
}

TEST_CASE("a batch norm whose scale is fixed is frozen with its shift") {
  ModelOptions options = small_options();
  options.bn_scale = false;
  CHECK(count_nodes<BatchNormInference>(small_net(options)) == 0);
  options.freeze = {"stem.bn.bias"};
  CHECK(count_nodes<BatchNormInference>(small_net(options)) == 1);
  options.bn_scale = true;  // the scale is trained
  CHECK(count_nodes<BatchNormInference>(small_net(options)) == 0);
}

TEST_CASE("patterns that match nothing, and everything frozen, are errors") {
  const auto error_of = [](std::vector<std::string> freeze, std::vector<std::string> norms) {
    ModelOptions options = small_options();
    options.freeze = std::move(freeze);
    options.freeze_batch_norm = std::move(norms);
    try {
      small_net(options);
      return std::string("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::config);
      return std::string(error.what());
    }
  };
  CHECK(error_of({"stem", "rigt"}, {}) ==
        "train.freeze: \"rigt\" matches no parameter of the model; did you mean right?");
  CHECK(error_of({"stem.bn.running_mean"}, {}) ==
        "train.freeze: \"stem.bn.running_mean\" matches no parameter of the model");
  CHECK(error_of({}, {"right"}) == "train.freeze_batch_norm: \"right\" matches no batch normalization of the model");
  CHECK(error_of({"*"}, {}) == "train.freeze matches every parameter of the model: nothing is left to train");
  CHECK(error_of({"[!f]*", "fc1"}, {"*"}) == "no error");
}

TEST_CASE("training uses batch statistics and dropout, evaluation neither") {
  ModelOptions options = small_options();
  const Graph train = small_net(options);
  CHECK(count_nodes<BatchNorm>(train) == 4);
  CHECK(count_nodes<BatchMoments>(train) == 4);
  CHECK(count_nodes<BatchNormInference>(train) == 0);
  REQUIRE(count_nodes<Dropout>(train) == 1);
  const Node* dropout = find_node(train, "dropout");
  REQUIRE(dropout);
  CHECK(std::get<Dropout>(dropout->op).rate == 0.25);
  CHECK(std::get<Dropout>(dropout->op).node_key == fnv1a64("dropout"));

  options.training = false;
  const Graph eval = small_net(options);
  CHECK(count_nodes<BatchNorm>(eval) == 0);
  CHECK(count_nodes<BatchMoments>(eval) == 0);
  CHECK(count_nodes<BatchNormInference>(eval) == 4);
  CHECK(count_nodes<Dropout>(eval) == 0);

  options = small_options();
  options.dropout = 0;
  CHECK(count_nodes<Dropout>(small_net(options)) == 0);
}

TEST_CASE("batch moments know the running mean they are measured from and the statistics they update") {
  const Graph graph = small_net(small_options());
  const Node* moments = find_node(graph, "stem.bn.moments");
  REQUIRE(moments);
  CHECK(std::get<BatchMoments>(moments->op).samples == 3);
  CHECK(graph.value(moments->inputs[2]).name == "stem.bn.running_mean");
  CHECK(graph.value(moments->outputs[0]).moment_of == graph.parameters.find("stem.bn.running_mean"));
  CHECK(graph.value(moments->outputs[1]).moment_of == graph.parameters.find("stem.bn.running_var"));
}

TEST_CASE("loss heads keep what the caller reads after the run") {
  const Graph graph = small_net(small_options());
  REQUIRE(graph.losses.size() == 2);
  CHECK(graph.losses[0].name == "loss");
  CHECK(graph.losses[0].weight == 1);
  CHECK(graph.losses[1].name == "aux_loss");
  CHECK(graph.losses[1].weight == 0.4);
  for (const LossHead& head : graph.losses) {
    CHECK(graph.value(head.logits).kept);
    CHECK(graph.value(head.loss).kept);
    CHECK(graph.value(head.correct).kept);
    CHECK(graph.value(head.logits).desc.shape == Shape{3, 4});
    CHECK(graph.value(head.loss).desc.shape == Shape{});
  }
}

TEST_CASE("a layer that does not fit the image is named") {
  ModelOptions options = small_options();
  options.image_size = 2;
  CHECK_THROWS_WITH(small_net(options), ContainsSubstring("tail: Conv2d: a window of 2 does not fit into H = 1"));
}

TEST_CASE("one value per channel has no batch statistics") {
  ModelOptions options{.batch_size = 1, .image_size = 1};
  ModelBuilder b(options);
  CHECK_THROWS_WITH(b.batch_norm(b.images(), "bn"),
                    ContainsSubstring("bn: BatchNorm: one value per channel") && ContainsSubstring("train.batch_size"));
}

TEST_CASE("two layers of one name are refused") {
  ModelBuilder b({.image_size = 8});
  b.conv(b.images(), "conv", {.channels = 2});
  CHECK_THROWS_WITH(b.conv(b.images(), "conv", {.channels = 2}),
                    ContainsSubstring("\"conv.weight\" is declared twice"));
}
