#include "lockstep/exchange/onnx_import.h"

#include "lockstep/exchange/onnx.h"
#include "test/catch.h"
#include "test/exchange/onnx_parts.h"
#include "test/exchange/weights.h"
#include "test/scratch.h"

using namespace lockstep;
using namespace lockstep::testing;

// What real files of PyTorch compute is in test/models/golden_test.cc.

namespace {

OnnxModel imported(const std::string& file) { return import_onnx(std::as_bytes(std::span(file)), "net.onnx"); }

std::string layers_of(const std::string& file) {
  const std::string text = imported(file).definition;
  const size_t first = text.find("[\n") + 2;
  return text.substr(first, text.size() - first - 2);
}

std::vector<NamedTensor> numbered_weights(const ParameterTable& table) {
  std::vector<NamedTensor> tensors;
  for (const Parameter& p : table.all()) {
    NamedTensor& tensor =
        tensors.emplace_back(p.name, p.shape, std::vector<float>(static_cast<size_t>(p.shape.elements())));
    for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = static_cast<float>(tensors.size() + i % 100);
  }
  return tensors;
}

const OnnxNodeText kFlatten{"Flatten", "/Flatten", {"a"}, {"f"}};
const OnnxNodeText kGemm{"Gemm", "/fc/Gemm", {"f", "fc.weight", "fc.bias"}, {"y"}, {}, {{"transB", 1}}};

// A network around `nodes`, which read x [N,3,8,8] and write a [N,3,8,8] by default, or features.
std::string around(Texts nodes, Texts tensors = {}, int64_t features = 3 * 8 * 8) {
  nodes.push_back(onnx_node(kFlatten));
  nodes.push_back(onnx_node(kGemm));
  tensors.push_back(onnx_weights("fc.weight", {2, features}));
  tensors.push_back(onnx_weights("fc.bias", {2}));
  return onnx_model({.nodes = std::move(nodes), .tensors = std::move(tensors)});
}
std::string one(const OnnxNodeText& node, Texts tensors = {}) {
  return around(Texts{onnx_node(node)}, std::move(tensors));
}

const char* const kEnd =
    "  { op = \"flatten\", name = \"Flatten\" },\n  { op = \"linear\", name = \"fc\", outputs = \"$classes\" },\n"
    "  { op = \"loss\", name = \"loss\" },\n";

}  // namespace

TEST_CASE("exported models come back with the same layers, names and weights") {
  for (const auto& [model, pixels] : {std::pair("cifar10_cnn", 24), {"resnet50", 64}, {"inception_v3", 75}}) {
    INFO(model);
    ModelOptions options{.batch_size = 1, .image_size = pixels, .classes = 4, .training = false, .bn_epsilon = 1e-5};
    const Graph graph = build_model(model, options);
    const std::vector<NamedTensor> weights = numbered_weights(graph.parameters);
    const OnnxModel back = imported(encode_onnx(graph, weights, {.name = model}));
    CHECK(back.image_size == pixels);
    options.definition = back.definition;
    options.definition_path = "net.onnx";
    options.bn_epsilon = 1;
    const Graph again = build_model("file", options);
    REQUIRE(again.nodes.size() == graph.nodes.size());
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      CHECK(again.nodes[i].op.index() == graph.nodes[i].op.index());
      CHECK(again.descs(again.nodes[i].outputs) == graph.descs(graph.nodes[i].outputs));
      const auto* norm = std::get_if<BatchNormInference>(&again.nodes[i].op);
      CHECK((!norm || norm->epsilon == 1e-5));
    }
    const std::vector<NamedTensor> arranged = arrange_by_table(back.weights, graph.parameters, "net.onnx");
    REQUIRE(again.parameters.size() == graph.parameters.size());
    for (int i = 0; i < graph.parameters.size(); ++i) {
      INFO(graph.parameters[i].name);
      CHECK(again.parameters[i].name == graph.parameters[i].name);
      CHECK(arranged[static_cast<size_t>(i)].values == weights[static_cast<size_t>(i)].values);
    }
  }
}

TEST_CASE("each operation of ONNX becomes its layer") {
  struct Row {
    std::string file, layers;
  };
  const Row rows[] = {
      {one({"Conv",
            "/stem/conv/Conv",
            {"x", "stem.conv.weight", "b"},
            {"a"},
            {{"kernel_shape", {3, 1}}, {"pads", {1, 0, 1, 0}}, {"strides", {1, 1}}}},
           {onnx_weights("stem.conv.weight", {3, 3, 3, 1}), onnx_weights("b", {3})}),
       R"(  { op = "conv", name = "stem.conv", kernel = [3, 1], pad = [1, 0], bias = true, channels = 3 },)"},
      {one({"MaxPool", "p", {"x"}, {"a"}, {{"kernel_shape", {3, 3}}, {"pads", {1, 1, 1, 1}}}, {{"ceil_mode", 1}}}),
       R"(  { op = "max_pool", name = "p", kernel = 3, pad = 1, ceil_mode = true },)"},
      {one({"AveragePool", "p", {"x"}, {"a"}, {{"kernel_shape", {3, 3}}, {"pads", {1, 1, 1, 1}}}}),
       R"(  { op = "avg_pool", name = "p", kernel = 3, pad = 1, count_include_pad = false },)"},
      {around(Texts{onnx_node({"Pad", "/Pad", {"x", "pads"}, {"padded"}}),
                    onnx_node({"AveragePool", "p", {"padded"}, {"a"}, {{"kernel_shape", {3, 3}}}})},
              {onnx_tensor("pads", {0, 0, 1, 1, 0, 0, 1, 1})}),
       R"(  { op = "avg_pool", name = "p", kernel = 3, pad = 1 },)"},
      {around(Texts{onnx_node({"Relu", "/layer1/layer1.0/relu/Relu", {"x"}, {"r"}}),
                    onnx_node({"Identity", "i", {"r"}, {"same"}}), onnx_node({"Add", "", {"same", "x"}, {"a"}})}),
       "  { op = \"relu\", name = \"layer1.0.relu\" },\n"
       "  { op = \"add\", name = \"a\", inputs = [\"layer1.0.relu\", \"images\"] },"},
      {one({"Conv", "c", {"x", "w"}, {"a"}, {}, {{"group", 3}}}, {onnx_weights("w", {3, 1, 1, 1})}),
       R"(  { op = "conv", name = "c", kernel = 1, groups = 3, channels = 3 },)"},
      {one({"Clip", "c", {"x", "zero", "six"}, {"a"}},
           {onnx_tensor("zero", {}, {0.0F}), onnx_tensor("six", {}, {6.0F})}),
       R"(  { op = "relu6", name = "c" },)"},
      {one({"Clip", "c", {"x", "zero"}, {"a"}}, {onnx_tensor("zero", {}, {0.0F})}),
       R"(  { op = "relu", name = "c" },)"},
      {one({"LRN", "n", {"x"}, {"a"}, {}, {{"size", 3}}}),
       R"(  { op = "local_response_norm", name = "n", size = 3, alpha = 0.0001, beta = 0.75, k = 1 },)"},
      {around(Texts{onnx_node({"Constant", "c", {}, {"ratio"}, {}, {}, {}, {{"value", onnx_tensor("", {}, {0.25F})}}}),
                    onnx_node({"Dropout", "/drop/Dropout", {"x", "ratio"}, {"a", "mask"}})}),
       R"(  { op = "dropout", name = "drop", rate = 0.25 },)"},
      {around(Texts{onnx_node({"BatchNormalization", "n", {"x", "s", "s", "s", "s"}, {"a", "mean", "var"}}),
                    onnx_node({"Sigmoid", "unused", {"mean"}, {"nothing"}})},
              {onnx_weights("s", {3})}),
       R"(  { op = "batch_norm", name = "n", epsilon = 1e-05 },)"},
  };
  for (const auto& [file, layers] : rows) {
    INFO(layers);
    CHECK(layers_of(file) == layers + "\n" + kEnd);
  }
}

TEST_CASE("names of weights come first, and every layer has its own") {
  const Texts nodes = {
      onnx_node({"Relu", "/c/Relu", {"x"}, {"r"}}),      onnx_node({"Conv", "/c/Conv", {"r", "c.weight"}, {"v"}}),
      onnx_node({"Relu", "/c/Relu_1", {"v"}, {"s"}}),    onnx_node({"Relu", "images", {"s"}, {"t"}}),
      onnx_node({"Relu", "two\n\"lines", {"t"}, {"u"}}), onnx_node({"Relu", "loss", {"u"}, {"a"}})};
  CHECK(layers_of(around(nodes, {onnx_weights("c.weight", {3, 3, 1, 1})})) ==
        R"(  { op = "relu", name = "c_2" },
  { op = "conv", name = "c", kernel = 1, channels = 3 },
  { op = "relu", name = "c_3" },
  { op = "relu", name = "images_2" },
  { op = "relu", name = "two__lines" },
  { op = "relu", name = "loss" },
  { op = "flatten", name = "Flatten" },
  { op = "linear", name = "fc", outputs = "$classes" },
  { op = "loss", name = "loss_2" },
)");
}

TEST_CASE("means over height and width, shapes of a view and a final softmax are recognized") {
  const Texts nodes = {
      onnx_node({"Conv", "node_conv", {"x", "classifier.weight"}, {"c"}}),
      onnx_node({"ReduceMean", "mean", {"c", "axes"}, {"m"}, {}, {{"keepdims", 1}}}),
      onnx_node({"Shape", "s", {"m"}, {"shape"}}),
      onnx_node({"Gather", "g", {"shape", "zero"}, {"n"}}),
      onnx_node({"Unsqueeze", "u", {"n", "zero"}, {"n1"}}),
      onnx_node({"Unsqueeze", "u", {"rest", "zero"}, {"rest1"}}),
      onnx_node({"Concat", "c", {"n1", "rest1"}, {"to"}, {}, {{"axis", 0}}}),
      onnx_node({"Reshape", "view", {"m", "to"}, {"v"}}),
      onnx_node({"Softmax", "p", {"v"}, {"y"}, {}, {{"axis", 1}}}),
  };
  CHECK(
      layers_of(onnx_model({.nodes = nodes,
                            .tensors = {onnx_weights("classifier.weight", {2, 3, 1, 1}), onnx_tensor("axes", {-1, -2}),
                                        onnx_tensor("zero", {0}), onnx_tensor("rest", {-1})},
                            .input = {0, 3, 0, 0}})) ==
      R"(  { op = "conv", name = "classifier", kernel = 1, channels = "$classes" },
  { op = "global_avg_pool", name = "mean" },
  { op = "flatten", name = "view" },
  { op = "loss", name = "loss" },
)");
}

TEST_CASE("weights of a product are transposed") {
  const Texts nodes = {onnx_node({"Flatten", "f", {"x"}, {"f"}}), onnx_node({"MatMul", "m", {"f", "w"}, {"p"}}),
                       onnx_node({"Add", "fc", {"fc.bias", "p"}, {"y"}})};
  const OnnxModel model = imported(onnx_model(
      {.nodes = nodes, .tensors = {onnx_weights("w", {3, 2}), onnx_weights("fc.bias", {2})}, .input = {2, 3, 1, 1}}));
  REQUIRE(model.weights.size() == 2);
  CHECK(model.weights[0].name == "m.weight");
  CHECK(model.weights[0].shape == Shape({2, 3}));
  CHECK(model.weights[0].values == std::vector<float>{0, 0.25F, 0.5F, 0.125F, 0.375F, 0.625F});
  CHECK(model.weights[1].values == std::vector<float>{0, 0.125F});
}

TEST_CASE("linear layers have a bias only where the file has one") {
  const Texts nodes = {
      onnx_node({"Flatten", "f", {"x"}, {"f"}}),        onnx_node({"MatMul", "m", {"f", "w"}, {"p"}}),
      onnx_node({"Relu", "r", {"p"}, {"r"}}),           onnx_node({"Transpose", "t", {"l.weight"}, {"v"}}),
      onnx_node({"MatMul", "left", {"r", "v"}, {"l"}}), onnx_node({"Gemm", "right", {"p", "u"}, {"g"}}),
      onnx_node({"Add", "sum", {"l", "g"}, {"s"}}),     onnx_node({"MatMul", "fc", {"s", "last"}, {"y"}})};
  const std::string file = onnx_model({.nodes = nodes,
                                       .tensors = {onnx_weights("w", {3, 2}), onnx_weights("l.weight", {2, 2}),
                                                   onnx_weights("u", {2, 2}), onnx_weights("last", {2, 4})},
                                       .input = {2, 3, 1, 1}});
  CHECK(layers_of(file) == R"(  { op = "flatten", name = "f" },
  { op = "linear", name = "m", bias = false, outputs = 2 },
  { op = "relu", name = "r" },
  { op = "linear", name = "right", input = "m", bias = false, outputs = 2 },
  { op = "linear", name = "l", input = "r", bias = false, outputs = 2 },
  { op = "add", name = "sum", inputs = ["l", "right"] },
  { op = "linear", name = "fc", bias = false, outputs = "$classes" },
  { op = "loss", name = "loss" },
)");
  const std::vector<NamedTensor> weights = imported(file).weights;
  REQUIRE(weights.size() == 4);
  CHECK(weights[0].values == std::vector<float>{0, 0.25F, 0.5F, 0.125F, 0.375F, 0.625F});
  CHECK(weights[2].name == "l.weight");
  CHECK(weights[2].values == std::vector<float>{0, 0.125F, 0.25F, 0.375F});
  CHECK_THAT(imported(file).definition, ContainsSubstring("\nclasses = 4\nimage_size = 1\n"));
}

TEST_CASE("what is wrong with an ONNX file, or cannot be expressed, is said with the node and its operation") {
  const std::string weights = onnx_weights("w", {3, 3, 1, 1});
  const auto conv = [](const std::string& name, const std::string& input, const std::string& output) {
    return onnx_node({"Conv", name, {input, "w"}, {output}});
  };
  const std::string whole = one({"Relu", "r", {"x"}, {"a"}});
  std::string external = onnx_weights("w", {3, 3, 1, 1});
  external += ProtobufWriter().integer(onnx_field::kTensorLocation, onnx_type::kExternal).data();
  std::string half = ProtobufWriter()
                         .integer(onnx_field::kTensorDims, 3)
                         .integer(onnx_field::kTensorDims, 3)
                         .integer(onnx_field::kTensorDims, 1)
                         .integer(onnx_field::kTensorDims, 1)
                         .integer(onnx_field::kTensorType, 10)
                         .text(onnx_field::kTensorName, "w")
                         .data();
  struct Row {
    std::string file, message;
  };
  const Row rows[] = {
      {"layer = []", "net.onnx: not an ONNX file, or cut short ("},
      {"", "net.onnx: not an ONNX file, or cut short (it has no graph)"},
      {whole.substr(0, whole.size() / 2), "net.onnx: not an ONNX file, or cut short (field past the end)"},
      {onnx_model({.nodes = {}, .opset = 11}), "net.onnx: its operations are those of opset 11; 13 or later is wanted"},
      {onnx_model({.nodes = {}, .input = {1, 1, 8, 8}}),
       "its input x has elements of type 1 of ONNX and the shape [1,1,8,8]"},
      {onnx_model({.nodes = {}, .input_type = 10}), "its input x has elements of type 10 of ONNX"},
      {onnx_model({.nodes = {}, .outputs = {"y", "aux"}}), "net.onnx: it has 2 outputs; one is wanted, the logits"},
      {onnx_model({.nodes = {}}), "net.onnx: its output y has not the shape [N,classes], or is not computed from"},
      {onnx_model({.nodes = {onnx_node({"Relu", "r", {"x"}, {"y"}})}}), "its output y has not the shape [N,classes]"},
      {one({"Sigmoid", "/act/Sigmoid", {"x"}, {"a"}}),
       "net.onnx: node /act/Sigmoid (Sigmoid): there is no layer for this operation, and one would be needed"},
      {one({"Relu", "r", {"x"}, {"a"}, {}, {}, {}, {}, "com.microsoft"}),
       "node r (Relu): there is no layer for this operation of com.microsoft"},
      {one({"Relu", "r", {"z"}, {"a"}}), "node r (Relu): no node before it has the output z"},
      {one({"Relu", "", {}, {"a"}}), "node a (Relu): it has no input 0"},
      {one({"Relu", "r", {"x"}, {"a"}, {}, {{"alpha", 1}}}), "node r (Relu): its attribute alpha is not known"},
      {one({"Conv", "c", {"x", "w"}, {"a"}, {{"dilations", {2, 2}}}}, {weights}),
       "node c (Conv): a layer for windows with dilation"},
      {one({"Conv", "c", {"x", "w"}, {"a"}, {{"pads", {0, 0, 1, 1}}}}, {weights}),
       "pads = [0,0,1,1]: pads of the same size"},
      {one({"Conv", "c", {"x", "w"}, {"a"}, {{"strides", {1}}}}, {weights}),
       "strides = [1]: a window has two dimensions"},
      {one({"Conv", "c", {"x", "w"}, {"a"}, {}, {}, {{"auto_pad", "SAME_UPPER"}}}, {weights}),
       "auto_pad = SAME_UPPER: pads of"},
      {one({"Conv", "c", {"x", "x"}, {"a"}}, {weights}),
       "node c (Conv): its input x is computed; a constant is wanted"},
      {one({"Conv", "c", {"x", "w"}, {"a"}}, {onnx_weights("w", {3, 3})}),
       "its weights w have the shape [3,3]; 4 dimensions"},
      {one({"Conv", "c", {"x", "w"}, {"a"}}, {external}), "the values of w are in the file"},
      {one({"Conv", "c", {"x", "w"}, {"a"}}, {half}), "w has elements of type 10 of ONNX, 32-bit floats are wanted"},
      {one({"Conv", "c", {"x", "w"}, {"a"}}, {onnx_tensor("w", {3, 3, 1, 1}, {1, 2})}),
       "w has 2 values, and 9 by its shape"},
      {one({"Conv", "c", {"x", "w"}, {"a"}}, {onnx_tensor("w", {1 << 30, 1 << 30, 1 << 30, 1 << 30}, {1})}),
       "w has fewer values than its shape says"},
      {around(Texts{conv("c", "x", "b"), conv("d", "b", "a")}, {weights}),
       "node d (Conv): its weights w are those of another layer"},
      {one({"Clip", "c", {"x", "zero", "one"}, {"a"}},
           {onnx_tensor("zero", {}, {0.0F}), onnx_tensor("one", {}, {1.0F})}),
       "node c (Clip): only the limits 0 and 6, ReLU6, have"},
      {one({"Clip", "c", {"x"}, {"a"}}), "node c (Clip): only the limits 0 and 6, ReLU6, have"},
      {one({"Add", "s", {"x", "w"}, {"a"}}, {weights}), "node s (Add): its input w is not the output of a layer"},
      {one({"Flatten", "s", {"x"}, {"a"}, {}, {{"axis", 2}}}), "node s (Flatten): axis = 2: only all of a sample"},
      {one({"Concat", "s", {"x", "x"}, {"a"}, {}, {{"axis", 2}}}), "node s (Concat): axis = 2: only channels"},
      {one({"Softmax", "s", {"x"}, {"a"}}), "node s (Softmax): it can only be the last operation"},
      {one({"Reshape", "s", {"x", "to"}, {"a"}}, {onnx_tensor("to", {1, 3, 64})}),
       "node s (Reshape): a shape of 3 dimensions"},
      {around(Texts{onnx_node({"Pad", "p", {"x", "pads"}, {"q"}}), onnx_node({"Relu", "r", {"q"}, {"a"}})},
              {onnx_tensor("pads", {0, 0, 1, 1, 0, 0, 1, 1})}),
       "node r (Relu): its input q is not the output of a layer"},
  };
  for (const auto& [file, message] : rows) {
    INFO(message);
    const auto error = error_of([&] { imported(file); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::config);
    CHECK_THAT(error->what(), ContainsSubstring(message));
  }
}

TEST_CASE("constants that many nodes have take little more memory than the file") {
  Texts nodes = {onnx_node({"Relu", "first", {"x"}, {"n0"}})};
  for (int i = 0; i < 50; ++i) {
    const std::string from = fmt::format("n{}", i), to = fmt::format("n{}", i + 1);
    nodes.push_back(onnx_node({"BatchNormalization", "", {from, "s", "s", "s", "s"}, {to}}));
  }
  nodes.push_back(onnx_node({"Relu", "last", {"n50"}, {"a"}}));
  CHECK(imported(around(nodes, {onnx_weights("s", {3})})).weights.size() == 202);
  const auto error = error_of([&] { imported(around(nodes, {onnx_weights("s", {3000})})); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("its constants s are used too often"));
}

TEST_CASE("weights are read from a file beside the ONNX file, and from no other") {
  const ScratchDirectory directory;
  const std::string path = directory / "net.onnx";
  write_file(directory / "weights", "12345678" + std::string(3 * 3 * 4, '\0') + "xy");
  ExitCode damaged = ExitCode::config;
  const auto model = [&](const std::string& location, const std::string& offset, const std::string& length = "36") {
    ProtobufWriter w;
    for (const int64_t extent : {3, 3, 1, 1}) w.integer(onnx_field::kTensorDims, extent);
    w.integer(onnx_field::kTensorType, onnx_type::kFloat).text(onnx_field::kTensorName, "w");
    w.integer(onnx_field::kTensorLocation, onnx_type::kExternal);
    for (const auto& [key, value] :
         {std::pair<const char*, std::string>("location", location), {"offset", offset}, {"length", length}}) {
      if (value.empty() && key == std::string("length")) continue;
      const ProtobufWriter entry =
          ProtobufWriter().text(onnx_field::kEntryKey, key).text(onnx_field::kEntryValue, value);
      w.message(onnx_field::kTensorExternal, entry);
    }
    write_file(path, one({"Conv", "c", {"x", "w"}, {"a"}}, {w.data()}));
    return read_onnx_model(path, damaged);
  };
  CHECK(model("weights", "8").weights.at(0).values == std::vector<float>(9));
  CHECK(model("weights", "8", "").weights.at(0).values == std::vector<float>(9));
  struct Row {
    std::string location, offset, message;
  };
  const Row rows[] = {
      {"../weights", "8", "node c (Conv): the values of w are in the file ../weights, which must be in the directory"},
      {"", "8", "the values of w are in the file , which must be"},
      {"other", "8", "/other: "},
      {"weights", "12", "/weights: w"},
      {"weights", "9999999999999999999", "offset of w is 9999999999999999999, not a number"},
      {"weights", "-4", "offset of w is -4, not a number"},
  };
  for (const auto& [location, offset, message] : rows) {
    const auto error = error_of([&] { model(location, offset); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::config);
    CHECK_THAT(error->what(), ContainsSubstring(message));
  }
  damaged = ExitCode::checkpoint;
  for (const auto& [location, offset] : {std::pair("other", "8"), {"weights", "12"}}) {
    const auto error = error_of([&, name = location, at = offset] { model(name, at); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::checkpoint);
  }
}
