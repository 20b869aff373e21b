#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/models/models.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

std::string definition_of(const std::string& model) {
  std::ifstream file(fmt::format("{}/{}.toml", LOCKSTEP_DEFINITIONS_DIR, model));
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE(!text.str().empty());
  return text.str();
}

// Everything that an operation, a value or a parameter says, but for names.
std::string text_of(const Window& w) {
  return fmt::format("{}x{} stride {}x{} pad {}x{}", w.kernel_h, w.kernel_w, w.stride_h, w.stride_w, w.pad_h, w.pad_w);
}
struct Attributes {
  std::string operator()(const Conv2d& op) const {
    return fmt::format("{} {} {}", text_of(op.window), op.bias, op.groups);
  }
  std::string operator()(const MaxPool& op) const { return text_of(op.window); }
  std::string operator()(const AvgPool& op) const {
    return fmt::format("{} {}", text_of(op.window), op.count_include_pad);
  }
  std::string operator()(const BatchNorm& op) const { return fmt::format("{}", op.epsilon); }
  std::string operator()(const BatchNormInference& op) const { return fmt::format("{}", op.epsilon); }
  std::string operator()(const BatchMoments& op) const { return fmt::format("{}", op.samples); }
  std::string operator()(const Dropout& op) const { return fmt::format("{} {}", op.rate, op.node_key); }
  std::string operator()(const SoftmaxCrossEntropy& op) const { return fmt::format("{}", op.label_smoothing); }
  std::string operator()(const Reshape& op) const { return op.shape.to_string(); }
  std::string operator()(const LocalResponseNorm& op) const {
    return fmt::format("{} {} {} {}", op.size, op.alpha, op.beta, op.k);
  }
  std::string operator()(const Linear& op) const { return fmt::format("{}", op.bias); }
  std::string operator()(const Relu& op) const { return fmt::format("{}", op.six); }
  std::string operator()(const Add&) const { return ""; }
  std::string operator()(const Concat&) const { return ""; }
  template <class Other>
  std::string operator()(const Other&) const {
    FAIL("an operation whose attributes are not compared");
    return "";
  }
};

void check_equal(const Graph& a, const Graph& b) {
  REQUIRE(a.nodes.size() == b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    INFO(x.name);
    CHECK(x.name == y.name);
    CHECK(x.op.index() == y.op.index());
    CHECK(std::visit(Attributes{}, x.op) == std::visit(Attributes{}, y.op));
    CHECK(x.inputs == y.inputs);
    CHECK(x.outputs == y.outputs);
  }
  REQUIRE(a.values.size() == b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    const Value &x = a.values[i], &y = b.values[i];
    INFO(x.name);
    CHECK(x.name == y.name);
    CHECK(x.desc.shape == y.desc.shape);
    CHECK(x.role == y.role);
    CHECK(x.external == y.external);
    CHECK(x.parameter == y.parameter);
    CHECK(x.moment_of == y.moment_of);
    CHECK(x.kept == y.kept);
  }
  REQUIRE(a.parameters.size() == b.parameters.size());
  for (int i = 0; i < a.parameters.size(); ++i) {
    const Parameter &x = a.parameters[i], &y = b.parameters[i];
    INFO(x.name);
    CHECK(x.name == y.name);
    CHECK(x.shape == y.shape);
    CHECK(x.kind == y.kind);
    CHECK(x.init.kind == y.init.kind);
    CHECK(x.init.value == y.init.value);
    CHECK(x.init.deviation == y.init.deviation);
  }
  REQUIRE(a.losses.size() == b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    CHECK(a.losses[i].name == b.losses[i].name);
    CHECK(a.losses[i].weight == b.losses[i].weight);
    CHECK(a.losses[i].logits == b.losses[i].logits);
  }
}

ModelOptions small(const std::string& definition) {
  return {.batch_size = 2, .image_size = 8, .classes = 4, .definition = definition, .definition_path = "net.toml"};
}

std::string error_of(const std::string& definition) {
  try {
    build_model("file", small(definition));
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    return e.what();
  }
  return "no error";
}

// A whole network around the lines under test, which begin at line 3.
std::string around(const std::string& lines, const std::string& blocks = "") {
  return "layer = [\n  { op = \"conv\", name = \"a\", channels = 3 },\n" + lines +
         "\n  { op = \"flatten\", name = \"f\" },\n  { op = \"linear\", name = \"fc\", outputs = \"$classes\" },\n"
         "  { op = \"loss\", name = \"loss\" },\n]\n" +
         blocks;
}

}  // namespace

TEST_CASE("the definitions of bundled models give their graphs, names and initial values") {
  for (const char* model : {"cifar10_cnn", "inception_v3", "resnet18", "resnet50"}) {
    for (const bool training : {true, false}) {
      INFO(model << (training ? ", training" : ", evaluation"));
      ModelOptions options{.batch_size = 4,
                           .image_size = 299,
                           .classes = 10,
                           .training = training,
                           .aux_weight = 0.4,
                           .dropout = 0.3,
                           .label_smoothing = 0.1,
                           .bn_epsilon = 1e-5};
      const Graph bundled = build_model(model, options);
      options.definition = definition_of(model);
      check_equal(build_model("file", options), bundled);
    }
  }
}

TEST_CASE("names repeat a layer, and a block's name stands for its last layer") {
  const Graph graph = build_model(
      "file",
      small(around("  { block = \"b\", names = [\"x\", \"y\"], k = 3 },\n  { op = \"add\", name = \"s\", inputs = "
                   "[\"x\", \"y\"] },",
                   "[block]\nb = [\n  { op = \"conv\", name = \"c\", channels = 3, kernel = \"$k\", pad = 1 },\n"
                   "  { op = \"relu\", name = \"r\" },\n]\n")));
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  CHECK(names == std::vector<std::string>{"a", "x.c", "x.r", "y.c", "y.r", "s", "f", "fc", "loss"});
  CHECK(graph.nodes[3].inputs[0] == graph.nodes[2].outputs[0]);
  CHECK(graph.nodes[5].inputs == std::vector<ValueId>{graph.nodes[2].outputs[0], graph.nodes[4].outputs[0]});
}

TEST_CASE("weights start by fan_in unless the file says otherwise") {
  const Graph graph = build_model("file", small(around("")));
  const ParameterId weight = graph.parameters.find("fc.weight");
  REQUIRE(weight >= 0);
  CHECK(graph.parameters[weight].init.deviation == std::sqrt(2.0 / (3 * 8 * 8)));
}

TEST_CASE("layers have the epsilon, rate and padding that the file gives them") {
  const Graph graph = build_model(
      "file",
      small("layer = [\n  { op = \"conv\", name = \"a\", channels = 4 },\n"
            "  { op = \"batch_norm\", name = \"n\", epsilon = 0.5 },\n  { op = \"batch_norm\", name = \"m\" },\n"
            "  { op = \"dropout\", name = \"d\", rate = 0.25 },\n"
            "  { op = \"avg_pool\", name = \"p\", kernel = 2, pad = 1, count_include_pad = false, ceil_mode = true },\n"
            "  { op = \"global_avg_pool\", name = \"g\" },\n  { op = \"flatten\", name = \"f\" },\n"
            "  { op = \"loss\", name = \"loss\" },\n]\n"));
  std::vector<double> numbers;
  for (const Node& node : graph.nodes) {
    if (const auto* norm = std::get_if<BatchNorm>(&node.op)) numbers.push_back(norm->epsilon);
    if (const auto* dropout = std::get_if<Dropout>(&node.op)) numbers.push_back(dropout->rate);
    if (const auto* pool = std::get_if<AvgPool>(&node.op)) numbers.push_back(pool->count_include_pad ? 1 : 0);
  }
  CHECK(numbers == std::vector<double>{0.5, 1e-3, 0.25, 0, 1});
}

TEST_CASE("convolutions have groups, linear layers can be without a bias, and there is ReLU6") {
  const Graph graph = build_model(
      "file", small("classes = 7\nimage_size = 9\nlayer = [\n  { op = \"conv\", name = \"a\", channels = 8 },\n"
                    "  { op = \"conv\", name = \"b\", channels = 12, groups = 4, kernel = 3, pad = 1 },\n"
                    "  { op = \"relu6\", name = \"r\" },\n  { op = \"global_avg_pool\", name = \"g\" },\n"
                    "  { op = \"flatten\", name = \"f\" },\n"
                    "  { op = \"linear\", name = \"fc\", outputs = \"$classes\", bias = false },\n"
                    "  { op = \"loss\", name = \"loss\" },\n]\n"));
  const ParameterId grouped = graph.parameters.find("b.weight");
  CHECK(graph.parameters[grouped].shape == Shape{12, 2, 3, 3});
  CHECK(graph.parameters[grouped].init.deviation == std::sqrt(2.0 / (2 * 9)));
  CHECK(graph.parameters.find("fc.bias") < 0);
  CHECK(std::get<Conv2d>(graph.nodes[1].op).groups == 4);
  CHECK(std::get<Relu>(graph.nodes[2].op).six);
}

TEST_CASE("what is wrong with a model file is said with its line and layer") {
  struct Row {
    std::string definition, message;
  };
  const std::string block = "[block]\nb = [{ op = \"conv\", name = \"c\", channels = \"$n\" }]\n";
  const Row rows[] = {
      {"layer = [\n  { op = \"relu\" name", "net.toml:2: not valid TOML: "},
      {"[block]\n", "net.toml: there is no list of layers: layer = [...]"},
      {"layer = 3\n", "net.toml:1: a list of layers is wanted"},
      {"layer = [\n3]\n", "net.toml:2: a layer is a table"},
      {"layers = []\n", "net.toml:1: unknown key layers; did you mean layer?"},
      {around("  { name = \"x\" },"), "net.toml:3: layer x: it needs op, one of conv, "},
      {around("  { op = \"rleu\", name = \"x\" },"), "net.toml:3: layer x: unknown op rleu; did you mean relu?"},
      {around("  { op = \"attention\", name = \"x\" },"), "layer x: unknown op attention; there are conv, "},
      {around("  { op = \"relu\" },"), "net.toml:3: layer ?: it needs either name or names"},
      {"layer = [{ op = \"relu\", name = [] }]\n", "net.toml:1: layer ?: a name is a string of letters, digits"},
      {around("  { op = \"relu\", name = \"x/y\" },"), "net.toml:3: layer ?: a name is a string of letters, digits"},
      {around("  { op = \"relu\", name = \"a\" },"), "net.toml:3: layer a: this name is taken"},
      {around("  { op = \"conv\", name = \"x\" },"), "net.toml:3: layer x: it needs channels"},
      {around("  { op = \"conv\", name = \"x\", chanels = 3 },"),
       "layer x: unknown key chanels; did you mean channels?"},
      {around("  { op = \"conv\", name = \"x\", channels = 0 },"), "layer x: channels is an integer from 1 to 65536"},
      {around("  { op = \"conv\", name = \"x\", channels = 1.5 },"), "layer x: channels is an integer from 1 to 65536"},
      {around("  { op = \"conv\", name = \"x\", channels = 3, kernel = [1, 2, 3] },"), "kernel is a number or [height"},
      {around("  { op = \"conv\", name = \"x\", channels = 3, pad = 1 },"), "layer x: pad must be smaller than kernel"},
      {around("  { op = \"conv\", name = \"x\", channels = 3, kernel = 9 },"),
       "net.toml:3: layer x: Conv2d: a window of 9"},
      {around("  { op = \"conv\", name = \"x\", channels = 3, bias = 1 },"), "layer x: bias is true or false"},
      {around("  { op = \"conv\", name = \"x\", channels = 4, groups = 2 },"),
       "layer x: 2 groups do not divide its 3 input and 4 output channels"},
      {around("  { op = \"conv\", name = \"x\", channels = 3, deviation = \"he\" },"), "deviation is a number of 0 or"},
      {around("  { op = \"relu\", name = \"x\", input = \"b\" },"), "layer x: its input b is no layer above it"},
      {around("  { op = \"relu\", name = \"x\", input = 7 },"), "layer x: its inputs are names of layers above it"},
      {around("  { op = \"add\", name = \"x\", inputs = [\"a\"] },"), "layer x: add takes 2 inputs, not 1"},
      {around("  { op = \"add\", name = \"x\", inputs = [\"a\", \"images\", \"a\"] },"), "add takes 2 inputs, not 3"},
      {around("  { op = \"linear\", name = \"x\", outputs = 3 },"), "a has the shape [2,3,8,8]: put a flatten between"},
      {around("  { op = \"conv\", name = \"x\", channels = \"$n\" },"), "outside a block there is only $classes"},
      {around("  { op = \"relu\", name = \"x\", input = \"a\" },\n  { op = \"relu\", name = \"y\", input = \"a\" },"),
       "net.toml:3: layer x: no layer reads its output, and it is no loss"},
      {around("  { op = \"conv_norm_relu\", name = \"x\", channels = 3 },\n  { op = \"relu\", name = \"x.conv\" },"),
       "net.toml:4: layer x.conv: this name is taken"},
      {around("  { op = \"conv\", name = \"x.conv\", channels = 3 },\n"
              "  { op = \"conv_norm_relu\", name = \"x\", channels = 3 },"),
       "net.toml:4: layer x.conv: this name is taken"},
      {around("  { op = \"conv\", name = \"x\", channels = 3 },\n  { op = \"conv\", name = \"x\", channels = 3 },"),
       "net.toml:4: layer x: this name is taken"},
      {around("  { op = \"local_response_norm\", name = \"x\", size = 4 },"), "net.toml:3: layer x: size is odd"},
      {around("  { op = \"local_response_norm\", name = \"x\", size = 3, k = \"1\" },"),
       "layer x: k is a finite number"},
      {around("  { block = \"d\", name = \"x\", n = 3 },", block), "layer x: there is no block d"},
      {around("  { block = \"b\", name = \"x\" },", block),
       "net.toml:9: layer x.c: channels = \"$n\": line 3, which uses"},
      {around("  { block = \"b\", name = \"x\", m = 3, n = 3 },", block), "net.toml:3: layer x: unknown key m"},
      {around("  { block = \"b\", name = \"x\", n = 3, input = [] },", block), "layer x: a block has one input"},
      {around("  { block = \"b\", name = \"x\" },", "[block]\nb = [{ block = \"b\", name = \"c\" }]\n"),
       "net.toml:9: layer x.c: a block contains no blocks"},
      {around("  { op = \"conv\", name = \"x\", channels = 65536, kernel = 1024, pad = 1023 },"),
       "weight is too large"},
      {around("  { op = \"relu\", name = \"x\", only = \"test\" },"), "layer x: only is \"training\", or not given"},
      {"layer = [\n  { op = \"flatten\", name = \"f\" },\n  { op = \"loss\", name = \"loss\" },\n]\n",
       "net.toml:3: layer loss: its input depends on no weights"},
      {around("  { op = \"batch_norm\", name = \"x\", epsilon = 0 },"), "net.toml:3: layer x: epsilon is above 0"},
      {around("  { op = \"dropout\", name = \"x\", rate = 1 },"), "layer x: rate is 0 or more, and below 1"},
      {around("  { op = \"max_pool\", name = \"x\", kernel = 3, stride = 2, ceil_mode = true },"),
       "layer x: ceil_mode would add a window beyond the edge of its input [2,3,8,8]"},
      {around("  { op = \"avg_pool\", name = \"x\", kernel = 2, count_include_pad = 0 },"),
       "layer x: count_include_pad is true or false"},
      {"layer = [\n  { op = \"flatten\", name = \"f\" },\n  { op = \"linear\", name = \"fc\", outputs = 9 },\n"
       "  { op = \"loss\", name = \"loss\" },\n]\n",
       "net.toml:4: layer loss: its input has 9 outputs, and model.classes = 4: use outputs = \"$classes\""},
      {"layer = [\n  { op = \"flatten\", name = \"f\" },\n  { op = \"linear\", name = \"fc\", outputs = 4 },\n]\n",
       "net.toml:3: layer fc: no layer reads its output, and it is no loss"},
  };
  for (const auto& [definition, message] : rows) {
    INFO(definition);
    CHECK_THAT(error_of(definition), Catch::Matchers::ContainsSubstring(message));
  }
}

TEST_CASE("layers only for training are not in evaluation, and nothing there depends on them") {
  const std::string head = "  { block = \"head\", name = \"aux\", only = \"training\" },\n";
  const std::string aux_loss = "  { op = \"loss\", name = \"aux_loss\", input = \"aux\", only = \"training\" },\n";
  const auto net = [](const std::string& first, const std::string& input, const std::string& last) {
    return "layer = [\n  { op = \"conv\", name = \"a\", channels = 3 },\n  { op = \"relu\", name = \"r\" },\n" + first +
           "  { op = \"flatten\", name = \"f\", input = \"" + input +
           "\" },\n  { op = \"linear\", name = \"fc\", outputs = \"$classes\" },\n" + last +
           "]\n[block]\nhead = [\n  { op = \"flatten\", name = \"f\" },\n"
           "  { op = \"linear\", name = \"fc\", outputs = \"$classes\" },\n]\n";
  };
  const std::string loss = "  { op = \"loss\", name = \"loss\" },\n";
  ModelOptions options = small(net(head, "r", loss + aux_loss));
  const Graph training = build_model("file", options);
  options.training = false;
  const Graph evaluation = build_model("file", options);
  CHECK(training.losses.size() == 2);
  CHECK(training.parameters.find("aux.fc.weight") >= 0);
  CHECK(evaluation.losses.size() == 1);
  CHECK(evaluation.losses[0].name == "loss");
  CHECK(evaluation.parameters.find("aux.fc.weight") == -1);
  CHECK(evaluation.nodes.size() == 5);
  options.definition =
      "layer = [\n  { op = \"flatten\", name = \"f\", only = \"training\" },\n"
      "  { op = \"linear\", name = \"fc\", outputs = \"$classes\", only = \"training\" },\n"
      "  { op = \"loss\", name = \"loss\", only = \"training\" },\n]\n";
  CHECK_THROWS_WITH(build_model("file", options), ContainsSubstring("evaluation has no loss"));
  CHECK_THAT(error_of(net(head, "aux", loss + aux_loss)),
             ContainsSubstring("net.toml:5: layer f: its input aux has only = \"training\": set that here as well"));
  CHECK_THAT(error_of(net(head, "a", loss + aux_loss)),
             ContainsSubstring("net.toml:3: layer r: only layers with only = \"training\" read its output"));
  CHECK_THAT(error_of(net(head, "r", aux_loss + "  { op = \"loss\", name = \"loss\", input = \"fc\" },\n")),
             ContainsSubstring("layer aux_loss: the first loss, which evaluation reports, has no only"));
  CHECK_THAT(error_of(net(head, "r", loss)), ContainsSubstring("layer aux: no layer reads its output"));
}
