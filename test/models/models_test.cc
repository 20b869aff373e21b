#include "lockstep/models/models.h"

#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/graph/executable.h"
#include "test/catch.h"

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
  const auto backend = make_backend("cpu", {.threads = 1});
  for (const Model& model : models()) {
    for (const bool training : {true, false}) {
      check_kernels(model, {.batch_size = 8, .training = training, .aux_weight = 0.4, .dropout = 0.2}, *backend);
      check_kernels(model, {.batch_size = 8, .image_size = 107, .training = training, .dropout = 0.2}, *backend);
    }
  }
}
