#include "graph/formats.h"

#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "test/catch.h"
#include "test/graph/fake_backend.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// conv1 -> conv2 -> relu -> linear: the fake backend wants blocked images and packed weights for the convolutions.
Graph two_convolutions() {
  ModelBuilder b({.batch_size = 2, .image_size = 4, .classes = 3});
  const ValueId x = b.conv(b.images(), "conv1", {.channels = 8});
  const ValueId y = b.relu(b.conv(x, "conv2", {.channels = 8}), "relu");
  b.loss(b.linear(b.flatten(y, "flatten"), "fc", {.outputs = 3}), "loss", 1.0);
  return std::move(b).finish();
}

std::vector<const Node*> reorders_of(const Graph& graph, const std::string& value) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes) {
    if (std::holds_alternative<Reorder>(node.op) && graph.value(node.inputs[0]).name == value) found.push_back(&node);
  }
  return found;
}

const Format& format_of(const Graph& graph, const std::string& value) {
  return graph.value(find_value(graph, value)).desc.format;
}

}  // namespace

TEST_CASE("values pass from operation to operation in the format both want") {
  Graph graph = two_convolutions();
  choose_formats(graph, FakeBackend());
  CHECK(format_of(graph, "conv1") == kBlocked);
  CHECK(format_of(graph, "conv2") == kBlocked);
  CHECK(format_of(graph, "relu") == kBlocked);  // follows its input
  CHECK(reorders_of(graph, "conv1").empty());
  CHECK(reorders_of(graph, "conv2").empty());
  CHECK(reorders_of(graph, "images").size() == 1);
  REQUIRE(reorders_of(graph, "relu").size() == 1);  // the reshape wants it plain
  CHECK(graph.value(reorders_of(graph, "relu")[0]->outputs[0]).desc.format == Format::plain());
  CHECK(format_of(graph, "flatten") == Format::plain());
  CHECK(is_well_formed(graph));
}

TEST_CASE("images made of bytes keep a format that is made for them, whatever their first reader wants") {
  ModelBuilder b({.batch_size = 2, .image_size = 4, .classes = 3});
  b.loss(b.linear(b.flatten(b.images(), "flatten"), "fc", {.outputs = 3}), "loss", 1.0);
  for (Graph graph : {std::move(b).finish(), two_convolutions()}) {
    REQUIRE(feed_pixels(graph, {}, DType::f32));
    choose_formats(graph, FakeBackend());
    CHECK(format_of(graph, "images") == kPacked);
    CHECK(reorders_of(graph, "images").size() == 1);
    CHECK(is_well_formed(graph));
  }
}

TEST_CASE("a backend without preferences gets no reorders") {
  Graph graph = small_net(small_options());
  add_gradients(graph);
  const size_t nodes = graph.nodes.size();
  choose_formats(graph, FakeBackend({.formats = false}));
  CHECK(graph.nodes.size() == nodes);
  CHECK(count_nodes<Reorder>(graph) == 0);
}

TEST_CASE("readers of one value share its reordered copy, the backward pass too") {
  ModelBuilder b({.batch_size = 2, .image_size = 4, .classes = 3});
  const ValueId left = b.conv(b.images(), "left", {.channels = 8});
  const ValueId right = b.conv(b.images(), "right", {.channels = 8});
  b.loss(b.linear(b.flatten(b.concat({left, right}, "cat"), "flatten"), "fc", {.outputs = 3}), "loss", 1.0);
  Graph graph = std::move(b).finish();
  add_gradients(graph);
  choose_formats(graph, FakeBackend());
  const auto copies = reorders_of(graph, "images");
  REQUIRE(copies.size() == 1);
  const ValueId copy = copies[0]->outputs[0];
  for (const char* name : {"left", "right", "left.grad_weights", "right.grad_weights"}) {
    CHECK(find_node(graph, name)->inputs[0] == copy);
  }
}

TEST_CASE("a packed copy of a parameter lives in one phase only") {
  Graph graph = two_convolutions();
  add_gradients(graph);
  choose_formats(graph, FakeBackend());
  const auto copies = reorders_of(graph, "conv2.weight");
  REQUIRE(copies.size() == 2);
  CHECK(copies[0]->phase == Phase::forward);
  CHECK(copies[1]->phase == Phase::backward);
  for (const Node* copy : copies) CHECK(graph.value(copy->outputs[0]).desc.format == kPacked);
  CHECK(find_node(graph, "conv2")->inputs[1] == copies[0]->outputs[0]);
  CHECK(find_node(graph, "conv2.grad_input")->inputs[1] == copies[1]->outputs[0]);
  CHECK(format_of(graph, "conv2.weight") == Format::plain());
}

TEST_CASE("weights are cast into the format of each reader, and no plain copy of them lives on") {
  ModelOptions options{.batch_size = 2, .image_size = 4, .classes = 3};
  options.dtype = DType::f32;
  ModelBuilder b(options);
  const ValueId x = b.conv(b.conv(b.images(), "conv1", {.channels = 8}), "conv2", {.channels = 8});
  b.loss(b.linear(b.flatten(x, "flatten"), "fc", {.outputs = 3}), "loss", 1.0);
  Graph graph = std::move(b).finish();
  lower_precision(graph, DType::bf16);
  add_gradients(graph);
  choose_formats(graph, FakeBackend());
  CHECK(is_well_formed(graph));
  std::vector<Phase> packed, plain;
  for (const Node& node : graph.nodes) {
    if (!std::holds_alternative<Cast>(node.op) || graph.value(node.inputs[0]).parameter < 0) continue;
    CHECK(graph.value(node.outputs[0]).desc.dtype == DType::bf16);
    (graph.value(node.outputs[0]).desc.format == kPacked ? packed : plain).push_back(node.phase);
  }
  CHECK(packed == std::vector{Phase::forward, Phase::forward, Phase::backward});  // conv1, conv2, conv2.grad_input
  CHECK(plain.size() == 2);                                                       // fc, its bias
  for (const char* name : {"conv1.weight.bf16", "conv2.weight.bf16"}) CHECK(reorders_of(graph, name).empty());
}

TEST_CASE("gradients of parameters are unpacked into plain format") {
  Graph graph = two_convolutions();
  add_gradients(graph);
  choose_formats(graph, FakeBackend());
  for (const Value& v : graph.values) {
    if (v.gradient_of < 0) continue;
    INFO(v.name);
    CHECK(v.desc.format == Format::plain());
  }
  const ValueId gradient = find_value(graph, "conv1.grad_weights");
  const Node& unpack = graph.node(graph.value(gradient).producer);
  CHECK(std::holds_alternative<Reorder>(unpack.op));
  CHECK(unpack.phase == Phase::backward);
  const Value& packed = graph.value(unpack.inputs[0]);
  CHECK(packed.desc.format == kPacked);
  CHECK(packed.gradient_of == -1);
  CHECK(graph.node(packed.producer).name == "conv1.grad_weights");
}

TEST_CASE("values that the caller reads end in plain format") {
  Graph graph = two_convolutions();
  graph.value(find_value(graph, "conv1")).kept = true;
  choose_formats(graph, FakeBackend());
  const Value& kept = graph.value(find_value(graph, "conv1"));
  CHECK(kept.desc.format == Format::plain());
  CHECK(std::holds_alternative<Reorder>(graph.node(kept.producer).op));
  CHECK(is_well_formed(graph));
}

TEST_CASE("saved outputs get the size that the backend names") {
  Graph graph = small_net(small_options());
  CHECK(fuse_norm_relu(graph) == 3);
  choose_formats(graph, FakeBackend());
  CHECK(graph.value(find_node(graph, "halve")->outputs[1]).desc.shape == Shape{3 * 18 * 9 * 9});
  CHECK(graph.value(find_node(graph, "stem.bn")->outputs[3]).desc.shape == Shape{(3 * 6 * 9 * 9 + 7) / 8});
  CHECK(graph.value(find_node(graph, "tail.bn")->outputs[3]).desc.shape == Shape{0});
}

TEST_CASE("random nets stay well formed and every node gets what it asked for") {
  const FakeBackend backend;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Graph graph = random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3, .aux_weight = 0.3});
    add_gradients(graph);
    choose_formats(graph, backend);
    INFO("seed " << seed);
    REQUIRE(is_well_formed(graph));
    for (const Node& node : graph.nodes) {
      if (std::holds_alternative<Reorder>(node.op)) continue;
      const auto inputs = graph.descs(node.inputs);
      const FormatChoice choice = backend.choose_formats(node.op, inputs, graph.descs(node.outputs));
      for (size_t i = 0; i < inputs.size(); ++i) REQUIRE(inputs[i].format == choice.inputs[i]);
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        REQUIRE(graph.value(node.outputs[i]).desc.format == choice.outputs[i]);
      }
    }
  }
}
