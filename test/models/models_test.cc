#include "lockstep/models/models.h"

#include <algorithm>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/config/model_info.h"
#include "lockstep/config/sources.h"
#include "lockstep/graph/executable.h"
#include "test/catch.h"
#include "test/models/recipe_options.h"

using namespace lockstep;

namespace {

int64_t forward_multiply_adds(const Graph& graph) {
  int64_t sum = 0;
  for (const Node& node : graph.nodes)
    sum += multiply_adds(node.op, graph.descs(node.inputs), graph.descs(node.outputs));
  return sum;
}

// Every kernel of the model on the CPU backend must be one that somebody made fast.
void check_kernels(const Model& model, const ModelOptions& options, const Backend& backend) {
  const Executable e = Executable::compile(build_model(model.name, options), backend, {.training = options.training});
  for (size_t p = 0; p < e.schedule().order.size(); ++p) {
    INFO(e.graph().node(e.schedule().order[p]).name);
    CHECK_THAT(e.kernel(p).implementation(), !ContainsSubstring("ref"));
  }
  fmt::print("{}, {}, {} images of {} pixels: {:.1f} MB of activations\n", model.name,
             options.training ? "training" : "evaluation", options.batch_size, options.image_size,
             static_cast<double>(e.plan().activation_bytes) / 1e6);
}

}  // namespace

TEST_CASE("inception_v3 has torchvision's parameters, in its order") {
  std::ifstream file(std::string(LOCKSTEP_GOLDEN_DIR) + "/inception_v3_parameters.txt");
  REQUIRE(file.is_open());
  const Graph graph = build_model("inception_v3", {.batch_size = 2, .aux_weight = 0.4});
  std::string name, shape;
  ParameterId id = 0;
  for (; file >> name >> shape; ++id) {
    REQUIRE(id < graph.parameters.size());
    CHECK(graph.parameters[id].name == name);
    INFO(name);
    CHECK(graph.parameters[id].shape.to_string() == shape);
  }
  CHECK(id == graph.parameters.size());
}

TEST_CASE("inception_v3 has as many parameters and multiply-adds as published") {
  const Graph with_aux = build_model("inception_v3", {.batch_size = 2, .aux_weight = 0.4});
  CHECK(with_aux.parameters.trained_elements() == 27'161'264);
  CHECK(std::abs(static_cast<double>(forward_multiply_adds(with_aux)) / 2e6 - 5718.9) < 0.05);
  const Graph without = build_model("inception_v3", {.batch_size = 2});
  CHECK(without.parameters.trained_elements() == 23'834'568);
  CHECK(without.losses.size() == 1);
}

TEST_CASE("inception_v3 takes every image size from 75 pixels on") {
  for (int64_t size = 75; size <= 299; ++size) {
    INFO(size);
    const Graph graph = build_model("inception_v3", {.batch_size = 2, .image_size = size, .classes = 10});
    CHECK(graph.value(graph.losses[0].logits).desc.shape == Shape{2, 10});
  }
  CHECK_NOTHROW(build_model("inception_v3", {.batch_size = 2, .image_size = 512, .aux_weight = 0.4}));
}

TEST_CASE("inception_v3 says what is wrong with an image size") {
  try {
    build_model("inception_v3", {.batch_size = 2, .image_size = 74});
    FAIL("74 pixels were taken");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK_THAT(e.what(), ContainsSubstring("model.image_size = 74") && ContainsSubstring("75 pixels"));
  }
  try {
    build_model("inception_v3", {.batch_size = 2, .image_size = 298, .aux_weight = 0.4});
    FAIL("298 pixels were taken with the auxiliary head");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK_THAT(e.what(), ContainsSubstring("model.image_size = 298") && ContainsSubstring("model.aux_weight = 0"));
  }
  CHECK_NOTHROW(build_model("inception_v3", {.image_size = 298, .training = false, .aux_weight = 0.4}));
}

TEST_CASE("one sample of a small image has no batch statistics") {
  try {
    build_model("inception_v3", {.batch_size = 1, .image_size = 75});
    FAIL("batch norm over one value was taken");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK_THAT(e.what(), ContainsSubstring("Mixed_7a.") && ContainsSubstring("one value per channel"));
  }
  CHECK_NOTHROW(build_model("inception_v3", {.batch_size = 1, .image_size = 75, .training = false}));
}

TEST_CASE("cifar10_cnn has the parameters of the classic network") {
  const Graph graph = build_model("cifar10_cnn", {.image_size = 24, .classes = 10});
  CHECK(graph.parameters.trained_elements() == 1'068'298);
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters.all()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc3.weight",
                                          "fc3.bias", "fc4.weight", "fc4.bias", "fc5.weight", "fc5.bias"});
  for (int64_t size : {1, 8, 28, 32, 33}) CHECK_NOTHROW(build_model("cifar10_cnn", {.image_size = size}));
}

TEST_CASE("the last pool of inception_v3 can be the maximum, with the same parameters") {
  const ModelOptions average{.batch_size = 2, .image_size = 75, .classes = 10};
  ModelOptions maximum = average;
  maximum.mixed_7c_max_pool = true;
  const Graph a = build_model("inception_v3", average), m = build_model("inception_v3", maximum);
  REQUIRE(a.nodes.size() == m.nodes.size());
  std::vector<std::string> changed;
  for (size_t n = 0; n < a.nodes.size(); ++n) {
    if (a.nodes[n].op.index() != m.nodes[n].op.index()) changed.push_back(m.nodes[n].name);
  }
  CHECK(changed == std::vector<std::string>{"Mixed_7c.max_pool"});
  REQUIRE(a.parameters.size() == m.parameters.size());
  for (ParameterId id = 0; id < a.parameters.size(); ++id) {
    CHECK(a.parameters[id].name == m.parameters[id].name);
    CHECK(a.parameters[id].shape == m.parameters[id].shape);
  }
}

TEST_CASE("resnet50's blocks have their layers") {
  const Graph graph = build_model("resnet50", {.batch_size = 2, .image_size = 224});
  CHECK(graph.parameters.trained_elements() == 25'557'032);
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters.all()) names.push_back(p.name);
  CHECK(names.size() == 53 * 5 + 2);
  const auto first_block = std::find(names.begin(), names.end(), "layer1.0.conv1.weight");
  CHECK(first_block - names.begin() == 5);
  CHECK(*(first_block + 15) == "layer1.0.downsample.0.weight");
  CHECK(*(first_block + 16) == "layer1.0.downsample.1.weight");
  CHECK(graph.parameters[graph.parameters.find("layer2.0.conv2.weight")].shape == Shape{128, 128, 3, 3});
  CHECK(graph.parameters.find("layer2.1.downsample.0.weight") == -1);
  CHECK(graph.parameters[graph.parameters.find("layer4.2.bn3.running_var")].shape == Shape{2048});
  // The stride is the 3x3 convolution's.
  for (const Node& node : graph.nodes) {
    const auto* conv = std::get_if<Conv2d>(&node.op);
    if (node.name == "layer2.0.conv1") CHECK(conv->window.stride_h == 1);
    if (node.name == "layer2.0.conv2") CHECK(conv->window.stride_h == 2);
  }
}

TEST_CASE("every ResNet has torchvision's parameters, in its order") {
  std::ifstream file(std::string(LOCKSTEP_GOLDEN_DIR) + "/resnet_parameters.txt");
  REQUIRE(file.is_open());
  std::string name, hash;
  int parameters = 0;
  int64_t elements = 0;
  int models = 0;
  for (; file >> name >> parameters >> elements >> hash; ++models) {
    INFO(name);
    const ParameterTable table = build_model(name, {.batch_size = 2, .image_size = 224}).parameters;
    std::string lines;
    int64_t sum = 0;
    for (const Parameter& p : table.all()) {
      lines += fmt::format("{} {}\n", p.name, p.shape.to_string());
      sum += p.shape.elements();
    }
    CHECK(table.size() == parameters);
    CHECK(sum == elements);
    CHECK(fmt::format("{:016x}", fnv1a64(lines)) == hash);
  }
  CHECK(models == 5);
}

TEST_CASE("ResNets have the published multiply-adds") {
  const std::pair<const char*, double> published[] = {
      {"resnet18", 1814}, {"resnet34", 3664}, {"resnet50", 4089}, {"resnet101", 7801}, {"resnet152", 11514}};
  for (const auto& [name, millions] : published) {
    INFO(name);
    const Graph graph = build_model(name, {.batch_size = 2, .image_size = 224});
    CHECK(std::abs(static_cast<double>(forward_multiply_adds(graph)) / 2e6 - millions) < 0.5);
  }
}

TEST_CASE("resnet50 takes images from one pixel on") {
  for (int64_t size : {1, 32, 33, 64, 97, 224, 225}) {
    INFO(size);
    CHECK_NOTHROW(build_model("resnet50", {.batch_size = 2, .image_size = size, .classes = 10}));
  }
}

TEST_CASE("wide_mlp has the layers of its list, on a table of the vocabulary") {
  const Graph graph =
      build_model("wide_mlp", {.batch_size = 3, .classes = 2, .hidden = {10, 20, 5}, .vocabulary = 124, .max_ids = 14});
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters.all()) names.push_back(p.name + " " + p.shape.to_string());
  CHECK(names == std::vector<std::string>{"hidden.0.weight [124,10]", "hidden.0.bias [10]", "hidden.1.weight [20,10]",
                                          "hidden.1.bias [20]", "hidden.2.weight [5,20]", "hidden.2.bias [5]",
                                          "output.weight [2,5]", "output.bias [2]"});
  CHECK(graph.value(graph.losses[0].logits).desc.shape == Shape{3, 2});
  for (const Value& v : graph.values) CHECK(!(v.role == ValueRole::external && v.external == ExternalInput::images));
  CHECK(build_model("wide_mlp", {.classes = 5, .hidden = {1}}).parameters.size() == 4);
  try {
    build_model("wide_mlp", {});
    FAIL("no hidden layer was taken");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK_THAT(e.what(), ContainsSubstring("model.hidden is empty"));
  }
}

TEST_CASE("an unknown model is refused with the names that there are") {
  try {
    build_model("inception_v4", {});
    FAIL("the name was taken");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK_THAT(e.what(), ContainsSubstring("\"inception_v4\"") && ContainsSubstring("inception_v3, cifar10_cnn"));
  }
}

TEST_CASE("no model falls to a slow path of the cpu backend") {
  struct Input {
    int64_t batch_size, image_size;
    double aux_weight;
  };
  // What the recipes have, the benchmarks, and a size that nothing divides.
  constexpr Input kInputs[] = {{32, 299, 0.4}, {8, 299, 0.4}, {32, 224, 0}, {8, 107, 0}, {16, 75, 0}, {64, 32, 0}};
  const auto backend = make_backend("cpu", {.threads = 1});
  for (const Model& model : models()) {
    for (const Input& input : kInputs) {
      if (input.image_size < model_info(model.name).smallest_image) continue;
      for (const bool training : {true, false}) {
        check_kernels(model,
                      {.batch_size = input.batch_size,
                       .image_size = input.image_size,
                       .training = training,
                       .aux_weight = input.aux_weight,
                       .dropout = 0.2,
                       .hidden = {10, 64}},
                      *backend);
      }
    }
  }
}

TEST_CASE("what counts a training step takes the options of the model's recipe") {
  for (const Model& model : models()) {
    const std::string name(test::recipe_of(model.name));
    INFO(model.name << " of " << name);
    const ModelOptions options = test::recipe_options(model.name, 8);
    const PreparePixels pixels = test::recipe_pixels(model.name);
    const Config recipe = load_config(gather_config_sources(name, {{.name = "data.train", .value = "train"}})).config;
    CHECK(options.batch_size == 8);
    CHECK(options.training);
    CHECK(options.classes == recipe.model.classes - (model.name == "inception_v3" ? 1 : 0));  // without background
    CHECK(options.dropout == recipe.model.dropout);
    CHECK(options.label_smoothing == recipe.train.label_smoothing);
    if (model.name == "wide_mlp") {
      CHECK(options.hidden == recipe.model.hidden);
      CHECK(options.vocabulary == recipe.model.vocabulary);
      CHECK(options.max_ids == recipe.model.max_ids);
      continue;
    }
    CHECK(options.image_size == recipe.model.image_size);
    CHECK(pixels.distort == (recipe.data.augment == "inception"));
    CHECK(pixels.changes);
    if (model.name == "cifar10_cnn") continue;  // it has neither norms nor an auxiliary head
    CHECK(options.aux_weight == recipe.model.aux_weight);
    CHECK(options.bn_scale == recipe.model.bn_scale);
    CHECK(options.bn_epsilon == recipe.model.bn_epsilon);
  }
}
