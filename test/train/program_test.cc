#include "lockstep/train/program.h"

#include <algorithm>

#include "test/catch.h"
#include "test/config/config_error.h"
#include "test/train/small_run.h"

using namespace lockstep;

TEST_CASE("label smoothing, dropout and statistics of the batch belong to training alone") {
  Config config = small_config();
  config.train.label_smoothing = 0.1;
  CHECK(model_options(config, 8, true).label_smoothing == 0.1);
  CHECK(model_options(config, 8, true).training);
  CHECK(model_options(config, 8, false).label_smoothing == 0);
  CHECK_FALSE(model_options(config, 8, false).training);
  CHECK(model_options(config, 8, false).batch_size == 8);
  CHECK(model_options(config, 8, false).classes == 3);
}

TEST_CASE("every parameter has memory of its own in the arenas") {
  const SmallRun run(small_config());
  const ParameterTable& table = run.program.parameters();
  const auto mark = [](ParameterId id, Weights weights) {
    return static_cast<float>(2 * id + (weights == Weights::raw));
  };
  for (ParameterId id = 0; id < table.size(); ++id) {
    for (Weights weights : {Weights::raw, Weights::average}) {
      const std::span<float> values = run.program.parameter(id, weights);
      CHECK(static_cast<int64_t>(values.size()) == table[id].shape.elements());
      std::fill(values.begin(), values.end(), mark(id, weights));
    }
  }
  for (ParameterId id = 0; id < table.size(); ++id) {
    for (Weights weights : {Weights::raw, Weights::average}) {
      CHECK(std::ranges::all_of(run.program.parameter(id, weights), [&](float v) { return v == mark(id, weights); }));
    }
  }
}

TEST_CASE("evaluation runs on the trained arenas, or on the averages") {
  const SmallRun run(small_config());
  const ModelState& state = run.program.state();
  CHECK(run.program.training_arenas().parameters == state.parameters.data());
  CHECK(run.program.training_arenas().gradients == state.gradients.data());
  CHECK(run.program.evaluation_arenas(Weights::raw).parameters == state.parameters.data());
  CHECK(run.program.evaluation_arenas(Weights::average).parameters == state.average_parameters.data());
  CHECK(run.program.evaluation_arenas(Weights::average).statistics == state.average_statistics.data());
  CHECK(run.program.evaluation_arenas(Weights::raw).gradients == nullptr);
}

TEST_CASE("a program for evaluation has the same parameters, but neither gradients nor slots") {
  const SmallRun training(small_config()), evaluation(small_config(), Purpose::evaluate);
  const ParameterTable &a = training.program.parameters(), &b = evaluation.program.parameters();
  REQUIRE(a.size() == b.size());
  for (ParameterId id = 0; id < a.size(); ++id) {
    CHECK(a[id].name == b[id].name);
    CHECK(a[id].shape == b[id].shape);
  }
  CHECK(evaluation.program.state().gradients.data() == nullptr);
  CHECK(evaluation.program.state().slots.empty());
  CHECK(evaluation.program.state().average_parameters.data() != nullptr);
}

TEST_CASE("a model that does not exist is a configuration error") {
  Config config = small_config();
  config.model.name = "alexnet";
  CHECK_THAT(config_error([&] { SmallRun run(config); }), ContainsSubstring("model.name = \"alexnet\""));
}
