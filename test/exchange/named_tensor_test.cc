#include "lockstep/exchange/named_tensor.h"

#include <algorithm>
#include <limits>

#include "test/catch.h"
#include "test/exchange/weights.h"
#include "test/scratch.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("tensors are put into the order of the model") {
  std::vector<NamedTensor> shuffled = small_weights();
  std::ranges::reverse(shuffled);
  const Graph graph = small_graph();
  const auto arranged = arrange_by_table(shuffled, graph.parameters, "file");
  REQUIRE(arranged.size() == graph.parameters.all().size());
  for (size_t i = 0; i < arranged.size(); ++i) CHECK(arranged[i].name == graph.parameters.all()[i].name);
}

TEST_CASE("every tensor that does not fit is named, with the file") {
  std::vector<NamedTensor> tensors = small_weights();
  tensors[0].name = "foreign";
  tensors[1].shape = Shape({5});
  const auto error = error_of([&] { arrange_by_table(tensors, small_graph().parameters, "a.h5"); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  const std::string text = error->what();
  CHECK_THAT(text, ContainsSubstring("a.h5: does not fit the model"));
  CHECK_THAT(text, ContainsSubstring("conv1.weight is missing"));
  CHECK_THAT(text, ContainsSubstring("conv1.bias is [5] in the file and [64] in the model"));
  CHECK_THAT(text, ContainsSubstring("foreign is not the model's"));
}

TEST_CASE("the first class is dropped from weights and biases of the classifier alone") {
  std::vector<NamedTensor> tensors = small_weights();
  const std::vector<NamedTensor> before = tensors;
  drop_first_class(tensors, small_graph());
  for (size_t i = 0; i < tensors.size(); ++i) {
    INFO(tensors[i].name);
    if (!tensors[i].name.starts_with("fc5.")) {
      CHECK(tensors[i].values == before[i].values);
      continue;
    }
    CHECK(tensors[i].shape[0] == 3);
    const auto row = static_cast<std::ptrdiff_t>(before[i].values.size() / 4);
    CHECK(std::ranges::equal(tensors[i].values, std::span(before[i].values).subspan(static_cast<size_t>(row))));
  }
}

TEST_CASE("every head has its classifier") {
  const Graph graph = build_model("inception_v3", {.batch_size = 2, .classes = 4, .aux_weight = 0.4});
  std::vector<std::string> names;
  for (const ParameterId id : classifier_parameters(graph)) names.push_back(graph.parameters[id].name);
  CHECK(names == std::vector<std::string>{"fc.weight", "fc.bias", "AuxLogits.fc.weight", "AuxLogits.fc.bias"});
}

TEST_CASE("a convolution is the classifier if only poolings and ReLU follow") {
  ModelBuilder b({.batch_size = 2, .image_size = 4, .classes = 3});
  const ValueId y = b.conv(b.conv(b.images(), "stem", {.channels = 5}), "last", {.channels = 3, .bias = true});
  b.loss(b.flatten(b.global_avg_pool(b.relu(y, "relu"), "pool"), "flatten"), "loss", 1);
  ModelBuilder sum({.batch_size = 2, .image_size = 1, .classes = 3});
  const ValueId x = sum.flatten(sum.images(), "x");
  sum.loss(sum.add(sum.linear(x, "a", {.outputs = 3}), x, "sum"), "loss", 1);
  const Graph graph = std::move(b).finish(), without = std::move(sum).finish();
  std::vector<std::string> names;
  for (const ParameterId id : classifier_parameters(graph)) names.push_back(graph.parameters[id].name);
  CHECK(names == std::vector<std::string>{"last.weight", "last.bias"});
  std::vector<NamedTensor> none;
  const auto error = error_of([&] { drop_first_class(none, without); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("the model has no classifier"));
}

TEST_CASE("a file whose names are all others shows the model's and its own") {
  std::vector<NamedTensor> tensors = small_weights();
  for (NamedTensor& tensor : tensors) tensor.name = "net\n" + tensor.name;
  const auto error = error_of([&] { arrange_by_table(tensors, small_graph().parameters, "a.h5"); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("conv1.weight is missing") &&
                                ContainsSubstring("net\\x0aconv1.bias is not the model's") &&
                                ContainsSubstring(" more"));
}

TEST_CASE("what PyTorch's wrappers put in front of all names is taken off, in any order") {
  const std::vector<NamedTensor> plain = small_weights();
  for (const std::string prefix : {"module.", "_orig_mod.", "model.", "_orig_mod.module.", "module._orig_mod."}) {
    std::vector<NamedTensor> tensors = plain;
    for (NamedTensor& tensor : tensors) tensor.name = prefix + tensor.name;
    CHECK(strip_wrapper_prefixes(tensors) == prefix);
    for (size_t i = 0; i < plain.size(); ++i) CHECK(tensors[i].name == plain[i].name);
  }
  std::vector<NamedTensor> mixed = plain;
  mixed[0].name = "module." + mixed[0].name;
  CHECK(strip_wrapper_prefixes(mixed).empty());
  CHECK(mixed[0].name == "module." + plain[0].name);
  std::vector<NamedTensor> none;
  CHECK(strip_wrapper_prefixes(none).empty());
}

TEST_CASE("weights that are not finite are refused with the name and how many") {
  std::vector<NamedTensor> tensors = small_weights();
  CHECK_NOTHROW(require_finite(tensors, "a.h5"));
  tensors[2].values[1] = std::numeric_limits<float>::quiet_NaN();
  tensors[2].values[3] = -std::numeric_limits<float>::infinity();
  const auto error = error_of([&] { require_finite(tensors, "a.h5"); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(), ContainsSubstring("a.h5: 2 of the ") && ContainsSubstring("values of " + tensors[2].name));
}
