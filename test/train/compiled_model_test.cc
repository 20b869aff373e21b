#include "lockstep/train/compiled_model.h"

#include <algorithm>

#include "test/catch.h"
#include "test/config/config_error.h"
#include "test/train/small_run.h"

using namespace lockstep;

TEST_CASE("every parameter has memory of its own in the arenas") {
  const SmallRun run(small_config());
  const ParameterTable& table = run.model.parameters();
  const auto mark = [](ParameterId id, Weights weights) {
    return static_cast<float>(2 * id + (weights == Weights::raw));
  };
  for (ParameterId id = 0; id < table.size(); ++id) {
    for (Weights weights : {Weights::raw, Weights::average}) {
      const std::span<float> values = run.model.parameter(id, weights);
      CHECK(static_cast<int64_t>(values.size()) == table[id].shape.elements());
      std::fill(values.begin(), values.end(), mark(id, weights));
    }
  }
  for (ParameterId id = 0; id < table.size(); ++id) {
    for (Weights weights : {Weights::raw, Weights::average}) {
      CHECK(std::ranges::all_of(run.model.parameter(id, weights), [&](float v) { return v == mark(id, weights); }));
    }
  }
}

TEST_CASE("evaluation runs on the trained arenas, or on the averages") {
  const SmallRun run(small_config());
  const ModelState& state = run.model.state();
  CHECK(run.model.training_arenas().parameters == state.parameters.data());
  CHECK(run.model.training_arenas().gradients == state.gradients.data());
  CHECK(run.model.evaluation_arenas(Weights::raw).parameters == state.parameters.data());
  CHECK(run.model.evaluation_arenas(Weights::average).parameters == state.average_parameters.data());
  CHECK(run.model.evaluation_arenas(Weights::average).statistics == state.average_statistics.data());
  CHECK(run.model.evaluation_arenas(Weights::raw).gradients == nullptr);
}

TEST_CASE("a program for evaluation has the same parameters, but neither gradients nor slots") {
  const SmallRun training(small_config()), evaluation(small_config(), Purpose::evaluate);
  const ParameterTable &a = training.model.parameters(), &b = evaluation.model.parameters();
  REQUIRE(a.size() == b.size());
  for (ParameterId id = 0; id < a.size(); ++id) {
    CHECK(a[id].name == b[id].name);
    CHECK(a[id].shape == b[id].shape);
  }
  CHECK(evaluation.model.state().gradients.data() == nullptr);
  CHECK(evaluation.model.state().slots.empty());
  CHECK(evaluation.model.state().average_parameters.data() != nullptr);
}

TEST_CASE("a model that does not exist is a configuration error") {
  Config config = small_config();
  config.model.name = "alexnet";
  CHECK_THAT(config_error([&] { SmallRun run(config); }), ContainsSubstring("model.name = \"alexnet\""));
}

TEST_CASE(
    "a model that does not fit in memory is refused with what it needs, what there is and the keys that lower it") {
  Config config = small_config();
  const auto backend = make_backend("cpu", {.threads = 1});
  const auto stream = backend->make_stream();
  const auto refusal = [&](const ModelBatches& batches, Purpose purpose = Purpose::train) {
    return config_error([&] { CompiledModel(config, batches, purpose, *backend, *stream); });
  };
  const std::string large = refusal({.training = 1'000'000'000, .evaluation = 4, .ranks = 2, .local_ranks = 2});
  CHECK_THAT(large, ContainsSubstring("the model does not fit in memory: a rank needs "));
  CHECK_THAT(large, ContainsSubstring("for activations"));
  CHECK_THAT(large, ContainsSubstring(", 2 ranks of this host "));
  CHECK_THAT(large, ContainsSubstring(" and there are "));
  CHECK_THAT(large, ContainsSubstring("lower train.batch_size (1000000000), model.image_size (8), or start"));
  CHECK_THAT(refusal({.training = 4, .evaluation = 1'000'000'000}),
             ContainsSubstring("lower eval.batch_size (1000000000)"));
  constexpr ModelBatches kEqual{.training = 1'000'000'000, .evaluation = 1'000'000'000};
  CHECK_THAT(refusal(kEqual, Purpose::evaluate), ContainsSubstring("lower train.batch_size (1000000000)"));
  config.eval.batch_size = 1'000'000'000;
  CHECK_THAT(refusal(kEqual, Purpose::evaluate), ContainsSubstring("lower eval.batch_size (1000000000)"));
  CHECK_THAT(refusal(kEqual), ContainsSubstring("lower train.batch_size (1000000000)"));
  config.train.global_batch = 1'000'000'000;
  const std::string global = refusal({.training = 1'000'000'000, .evaluation = 4});
  CHECK_THAT(global, ContainsSubstring("lower train.global_batch (1000000000), model.image_size (8), or"));
}

TEST_CASE("the bytes of a model's state are those that its buffers have") {
  for (const Purpose purpose : {Purpose::train, Purpose::evaluate}) {
    const SmallRun run(small_config(), purpose);
    const ModelState& state = run.model.state();
    size_t bytes = state.parameters.bytes() + state.statistics.bytes() + state.gradients.bytes() +
                   state.average_parameters.bytes() + state.average_statistics.bytes() + state.activations.bytes();
    for (const Buffer& slot : state.slots) bytes += slot.bytes();
    CHECK(bytes == model_state_bytes(run.model.layout(), {.optimizer = parse_optimizer(run.config.optimizer.name),
                                                          .training = purpose == Purpose::train,
                                                          .average = run.config.ema.decay > 0,
                                                          .activation_bytes = state.activations.bytes()}));
  }
}
