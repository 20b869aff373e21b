#include "lockstep/exchange/named_tensor.h"

#include <algorithm>

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
