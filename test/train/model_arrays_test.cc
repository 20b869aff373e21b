#include "lockstep/train/model_arrays.h"

#include "test/catch.h"

using namespace lockstep;

namespace {

struct Fixture {
  explicit Fixture(OptimizerKind kind, bool average, bool training = true) : optimizer(kind) {
    table.add({.name = "conv.weight", .shape = Shape{4, 3, 2, 2}});
    table.add({.name = "bn.weight", .shape = Shape{4}, .kind = ParameterKind::fixed_scale});
    table.add({.name = "bn.bias", .shape = Shape{4}, .kind = ParameterKind::norm_shift});
    table.add({.name = "bn.running_mean", .shape = Shape{4}, .kind = ParameterKind::running_mean});
    table.add({.name = "fc.weight", .shape = Shape{10, 4}});
    layout = lay_out_parameters(table, std::vector<ParameterId>{4, 2, 0});
    state = make_model_state(*backend, *stream, layout, {.optimizer = kind, .training = training, .average = average});
  }
  std::vector<CheckpointArray> arrays() const { return model_arrays(table, layout, state, optimizer); }
  std::vector<std::string> paths() const {
    std::vector<std::string> all;
    for (const CheckpointArray& a : arrays()) all.push_back(a.path);
    return all;
  }

  OptimizerKind optimizer;
  std::unique_ptr<Backend> backend = make_backend("reference", {});
  std::unique_ptr<Stream> stream = backend->make_stream();
  ParameterTable table;
  ParameterLayout layout;
  ModelState state;
};

using Paths = std::vector<std::string>;

const Paths kModel = {"/model/conv.weight", "/model/bn.weight", "/model/bn.bias", "/model/bn.running_mean",
                      "/model/fc.weight"};

}  // namespace

TEST_CASE("a file holds the model in the order of its table, then each slot of what is trained") {
  Paths expected = kModel;
  for (const char* name : {"conv.weight", "bn.bias", "fc.weight"}) {
    expected.push_back(std::string("/optimizer/momentum/") + name);
  }
  CHECK(Fixture(OptimizerKind::sgd, false).paths() == expected);
}

TEST_CASE("averages follow the model with the statistics among them, and slots bear the optimizer's names") {
  Paths expected = kModel;
  for (const char* name : {"conv.weight", "bn.weight", "bn.bias", "bn.running_mean", "fc.weight"}) {
    expected.push_back(std::string("/ema/") + name);
  }
  for (const char* slot : {"exp_avg", "exp_avg_sq"}) {
    for (const char* name : {"conv.weight", "bn.bias", "fc.weight"}) {
      expected.push_back(std::string("/optimizer/") + slot + "/" + name);
    }
  }
  CHECK(Fixture(OptimizerKind::adamw, true).paths() == expected);
}

TEST_CASE("a state for evaluation has no slots") {
  CHECK(Fixture(OptimizerKind::rmsprop_tf, false, false).paths() == kModel);
}

TEST_CASE("every array is the parameter's own memory with its canonical shape") {
  const Fixture f(OptimizerKind::rmsprop_tf, true);
  for (const CheckpointArray& a : f.arrays()) {
    INFO(a.path);
    const ParameterId id = f.table.find(a.path.substr(a.path.rfind('/') + 1));
    CHECK(a.shape == f.table[id].shape);
    const bool trained = f.table[id].trained();
    const Buffer* arena = trained ? &f.state.parameters : &f.state.statistics;
    if (a.path.starts_with("/ema/")) arena = trained ? &f.state.average_parameters : &f.state.average_statistics;
    if (a.path.starts_with("/optimizer/mean_square/")) arena = &f.state.slots[0];
    if (a.path.starts_with("/optimizer/momentum/")) arena = &f.state.slots[1];
    CHECK(a.data == arena->as<float>() + f.layout.offset[static_cast<size_t>(id)]);
    CHECK(a.data[0] == (a.path.starts_with("/optimizer/mean_square/") ? 1 : 0));
  }
}
