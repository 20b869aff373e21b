#include "lockstep/exchange/onnx.h"

#include <set>

#include "exchange/onnx_file.h"
#include "test/catch.h"
#include "test/exchange/weights.h"
#include "test/scratch.h"

using namespace lockstep;
using namespace lockstep::testing;

// What the files compute is checked by onnxruntime (test/app/exchange_test.py).

namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// One field of node.op_type: key, length, text.
std::string op_type(const std::string& type) { return fmt::format("\x22{}{}", static_cast<char>(type.size()), type); }

std::vector<NamedTensor> zeros_for(const Graph& graph) {
  std::vector<NamedTensor> tensors;
  for (const Parameter& p : graph.parameters.all()) {
    tensors.push_back({p.name, p.shape, std::vector<float>(static_cast<size_t>(p.shape.elements()))});
  }
  return tensors;
}

}  // namespace

TEST_CASE("each layer of the evaluation graph becomes one operator") {
  const std::string file = encode_onnx(small_graph(false), small_weights(), {.name = "small"});
  CHECK(count(file, op_type("Conv")) == 2);
  CHECK(count(file, op_type("LRN")) == 2);
  CHECK(count(file, op_type("MaxPool")) == 2);
  CHECK(count(file, op_type("Relu")) == 4);
  CHECK(count(file, op_type("Gemm")) == 3);
  CHECK(count(file, op_type("Flatten")) == 1);
}

TEST_CASE("folding leaves no batch norm where each follows a convolution") {
  const ModelOptions options{.batch_size = 1, .image_size = 64, .classes = 4, .training = false};
  const Graph graph = build_model("resnet50", options);
  CHECK(count(encode_onnx(graph, zeros_for(graph), {}), op_type("BatchNormalization")) == 53);
  CHECK(count(encode_onnx(graph, zeros_for(graph), {.fold_batch_norm = true}), op_type("BatchNormalization")) == 0);
}

TEST_CASE("layers that are called like a parameter or like the output have outputs of other names") {
  Graph graph = small_graph(false);
  graph.values[graph.nodes[0].outputs[0]].name = "logits";
  graph.values[graph.nodes[1].outputs[0]].name = small_weights()[0].name;
  const std::string bytes = encode_onnx(graph, small_weights(), {});
  const OnnxGraph file = parse_onnx(std::as_bytes(std::span(bytes)));
  std::set<std::string> names;
  for (const auto& [name, tensor] : file.initializers) names.emplace(name);
  for (const OnnxNode& node : file.nodes) {
    for (const std::string_view output : node.outputs) CHECK(names.emplace(output).second);
  }
  CHECK(names.contains("logits"));
  CHECK(names.contains("logits:output"));
}

TEST_CASE("a sum of embeddings is a product of values and gathered rows") {
  const Graph graph = build_model(
      "wide_mlp", {.batch_size = 1, .classes = 2, .training = false, .hidden = {4, 4}, .vocabulary = 10, .max_ids = 3});
  const std::string file = encode_onnx(graph, zeros_for(graph), {});
  for (const char* type : {"Less", "Where", "Unsqueeze", "Gather", "MatMul", "Squeeze", "Add"}) {
    INFO(type);
    CHECK(count(file, op_type(type)) == 1);
  }
  CHECK(count(file, op_type("Gemm")) == 2);
}

TEST_CASE("a training graph is refused, with the operation that ONNX has no equal of") {
  const Graph graph = build_model("resnet50", {.batch_size = 2, .image_size = 64, .classes = 4});
  const auto error = error_of([&] { encode_onnx(graph, zeros_for(graph), {}); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(), ContainsSubstring("cannot be written as ONNX"));
}
