// The operations that frame a step, on every backend.
#include "backend/step_rules.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "test/backend/op_runner.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Body>
void on_every_backend(Body&& body) {
  auto run = [&](std::string_view name, DType dtype) {
    INFO(name << " in " << dtype_name(dtype));
    body(*make_backend(name, {.threads = 1}), dtype);
  };
  run("reference", DType::f64);
  for (std::string_view name : backend_names()) run(name, DType::f32);
}

HostTensor of(DType dtype, std::vector<double> values) {
  return {{static_cast<int64_t>(values.size())}, dtype, std::move(values)};
}

// A struct of doubles as a tensor, and back.
template <class T>
using Doubles = std::array<double, sizeof(T) / sizeof(double)>;
template <class T>
HostTensor doubles_of(const T& value) {
  const auto values = std::bit_cast<Doubles<T>>(value);
  return of(DType::f64, {values.begin(), values.end()});
}
template <class T>
T from_doubles(const HostTensor& tensor) {
  Doubles<T> values;
  std::copy_n(tensor.values.begin(), values.size(), values.begin());
  return std::bit_cast<T>(values);
}

// DecideUpdate step by step, with what it remembers.
struct Decision {
  const Backend& backend;
  DType dtype;
  DecideUpdate op;
  UpdateState state{};
  std::vector<double> scalars{};

  StepOutcome operator()(const StepHeader& header, double squares, double rate = 0.5) {
    std::vector<double> elements(kStepHeaderElements);
    elements[kHeaderSamples] = header.samples;
    elements[kHeaderLoss] = header.loss;
    elements[kHeaderCorrect1] = header.correct1;
    elements[kHeaderCorrect5] = header.correct5;
    elements[kHeaderStop] = header.stop;
    elements[kHeaderSave] = header.save;
    elements[kHeaderNotFinite] = header.not_finite;
    const HostTensor inputs[] = {of(dtype, elements), of(DType::f64, {squares}),
                                 doubles_of(StepControl{.learning_rate = rate})};
    HostTensor outputs[] = {of(dtype, std::vector<double>(kUpdateScalars, -1)), doubles_of(state),
                            doubles_of(StepOutcome{.own_loss = 7})};
    run_update(backend, {dtype, op}, inputs, outputs);
    scalars = outputs[0].values;
    state = from_doubles<UpdateState>(outputs[1]);
    return from_doubles<StepOutcome>(outputs[2]);
  }
};

}  // namespace

TEST_CASE("a rank's header holds its samples, its weighted loss, what its first head got right, and its flags") {
  on_every_backend([](const Backend& backend, DType dtype) {
    const StepControl control{.samples = 31, .stop = 1, .save = 0};
    const HostTensor inputs[] = {doubles_of(control), of(DType::i32, {5, 12}), of(dtype, {2}), of(dtype, {4})};
    HostTensor outputs[] = {of(dtype, std::vector<double>(kStepHeaderElements, kNan)), doubles_of(StepOutcome{})};
    run_update(backend, {dtype, FillStepHeader{{1, 0.5}}}, inputs, outputs);
    std::vector<double> expected(kStepHeaderElements);
    expected[kHeaderSamples] = 31;
    expected[kHeaderLoss] = 4;
    expected[kHeaderCorrect1] = 5;
    expected[kHeaderCorrect5] = 12;
    expected[kHeaderStop] = 1;
    CHECK(outputs[0].values == expected);
    CHECK(from_doubles<StepOutcome>(outputs[1]).own_loss == 4);
    run_update(backend, {dtype, FillStepHeader{{1, 0.5}}}, inputs, outputs);  // another micro-batch of the step
    CHECK(outputs[0].values == expected);
    CHECK(from_doubles<StepOutcome>(outputs[1]).own_loss == 8);
  });
}

TEST_CASE("a loss that is not finite raises the flag") {
  on_every_backend([](const Backend& backend, DType dtype) {
    for (const double loss : {kNan, std::numeric_limits<double>::infinity()}) {
      const HostTensor inputs[] = {doubles_of(StepControl{.samples = 4}), of(DType::i32, {0, 0}), of(dtype, {loss})};
      HostTensor outputs[] = {of(dtype, std::vector<double>(kStepHeaderElements)), doubles_of(StepOutcome{})};
      run_update(backend, {dtype, FillStepHeader{{1}}}, inputs, outputs);
      CHECK(outputs[0].values[kHeaderNotFinite] == 1);
      CHECK_FALSE(std::isfinite(from_doubles<StepOutcome>(outputs[1]).own_loss));
    }
  });
}

TEST_CASE("a finite step is decided on: scalars for the update, the count of updates, the sums for the host") {
  on_every_backend([](const Backend& backend, DType dtype) {
    Decision decide{backend, dtype, {.beta1 = 0.5, .beta2 = 0.75, .average_decay = 0.3}};
    const StepHeader header{.samples = 8, .loss = 12, .correct1 = 2, .correct5 = 6, .stop = 1, .save = 2};
    for (int update = 1; update <= 3; ++update) {
      const StepOutcome outcome = decide(header, 36);
      CHECK(outcome.samples == 8);
      CHECK(outcome.loss == 12);
      CHECK(outcome.correct1 == 2);
      CHECK(outcome.correct5 == 6);
      CHECK(outcome.stop == 1);
      CHECK(outcome.save == 2);
      CHECK(outcome.not_finite == 0);
      CHECK(outcome.norm == 6.0 / 8);
      CHECK(outcome.applied == 1);
      CHECK(outcome.updates == update);
      CHECK(outcome.own_loss == 7);  // another operation's
      CHECK(decide.scalars[kLearningRate] == 0.5);
      CHECK(decide.scalars[kGradientScale] == 1.0 / 8);
      CHECK(decide.scalars[kSampleCount] == 8);
      CHECK(decide.scalars[kSkip] == 0);
      CHECK(decide.scalars[kBias1] == 1 - std::pow(0.5, update));
      CHECK(decide.scalars[kBias2] == 1 - std::pow(0.75, update));
      // During its warm-up the average decays by (1 + n) / (10 + n): 2/11, 3/12, then by its own decay.
      const double expected = std::min(0.3, (1.0 + update) / (10.0 + update));
      CHECK(decide.scalars[kAverageDecay] == Approx(expected).epsilon(1e-7));
    }
  });
}

TEST_CASE("a gradient longer than the limit is scaled down to it, a shorter one is left alone") {
  on_every_backend([](const Backend& backend, DType dtype) {
    Decision decide{backend, dtype, {.clip_norm = 0.5}};
    CHECK(decide({.samples = 4}, 64).norm == 2);
    CHECK(decide.scalars[kGradientScale] == 0.25 * 0.25);
    CHECK(decide({.samples = 4}, 1).norm == 0.25);
    CHECK(decide.scalars[kGradientScale] == 0.25);
  });
}

TEST_CASE("a step with a loss or a gradient that is not finite is skipped, and the next one is not") {
  on_every_backend([](const Backend& backend, DType dtype) {
    Decision decide{backend, dtype, {}};
    CHECK(decide({.samples = 4}, 1).applied == 1);
    CHECK(decide({.samples = 4, .not_finite = 1}, 1).applied == 0);
    CHECK(decide.scalars[kSkip] == 1);
    CHECK(decide({.samples = 4}, kNan).applied == 0);
    CHECK(decide({.samples = 4}, std::numeric_limits<double>::infinity()).applied == 0);
    const StepOutcome next = decide({.samples = 4}, 1);
    CHECK(next.applied == 1);
    CHECK(next.updates == 2);
    CHECK(decide.scalars[kSkip] == 0);
  });
}

TEST_CASE("a step that is not finite halts all later ones where that is asked for") {
  on_every_backend([](const Backend& backend, DType dtype) {
    Decision decide{backend, dtype, {.halt = true}};
    CHECK(decide({.samples = 4}, 1).applied == 1);
    CHECK(decide({.samples = 4, .not_finite = 2}, 1).applied == 0);
    const StepOutcome next = decide({.samples = 4}, 1);
    CHECK(next.not_finite == 0);
    CHECK(next.applied == 0);
    CHECK(next.updates == 1);
    CHECK(decide.scalars[kSkip] == 1);
  });
}

TEST_CASE("the norm is the square root of what can be beyond float32") {
  on_every_backend([](const Backend& backend, DType dtype) {
    Decision decide{backend, dtype, {}};
    const StepOutcome outcome = decide({.samples = 1}, 0x1p200);
    CHECK(outcome.norm == 0x1p100);
    CHECK(outcome.applied == 1);
  });
}

TEST_CASE("a step that is skipped leaves weights, slots, averages and statistics as they are") {
  on_every_backend([](const Backend& backend, DType dtype) {
    std::vector<double> values(kUpdateScalars, 0.5);
    values[kSkip] = 1;
    const HostTensor scalars = of(dtype, values), gradients = of(dtype, {kNan, 3});
    for (const OptimizerSlots& row : optimizers()) {
      INFO(row.name);
      const HostTensor inputs[] = {gradients, scalars};
      std::vector<HostTensor> outputs(1 + row.slots.size(), of(dtype, {1, 2}));
      run_update(backend, {dtype, ApplyOptimizer{.kind = row.kind, .segments = {{0, 2, 0.1}}}}, inputs, outputs);
      for (const HostTensor& output : outputs) CHECK(output.values == std::vector<double>{1, 2});
    }
    const HostTensor inputs[] = {gradients, scalars};
    HostTensor average[] = {of(dtype, {1, 2})};
    run_update(backend, {dtype, ApplyAverage{2}}, inputs, average);
    CHECK(average[0].values == std::vector<double>{1, 2});
    run_update(backend, {dtype, ApplyStatistics{0.1, {{0, 1, 1, 4}}}}, inputs, average);
    CHECK(average[0].values == std::vector<double>{1, 2});
  });
}

TEST_CASE("a loss scale divides out of norm and gradients") {
  on_every_backend([](const Backend& backend, DType dtype) {
    Decision decide{backend, dtype, {.scale_loss = true}, {.loss_scale = 256}};
    const StepOutcome outcome = decide({.samples = 4, .loss = 1}, 256.0 * 256.0 * 64);
    CHECK(outcome.norm == 2);
    CHECK(outcome.applied == 1);
    CHECK(decide.scalars[kGradientScale] == 1.0 / (4 * 256));
    CHECK(decide.scalars[kLossScale] == 256);
  });
}

TEST_CASE("gradients that overflow beside a finite loss halve the loss scale and skip the step, which is no failure") {
  on_every_backend([](const Backend& backend, DType dtype) {
    Decision decide{backend, dtype, {.halt = true, .scale_loss = true}, {.loss_scale = 4, .steady_steps = 7}};
    for (double expected : {2.0, 1.0}) {
      const StepOutcome outcome = decide({.samples = 4, .loss = 1}, kNan);
      CHECK(outcome.overflowed == 1);
      CHECK(outcome.applied == 0);
      CHECK(outcome.loss_scale == expected);
      CHECK(decide.scalars[kSkip] == 1);
      CHECK(decide.scalars[kLossScale] == expected);
      CHECK(decide.state.steady_steps == 0);
      CHECK(decide.state.halted == 0);
    }
    CHECK(decide({.samples = 4, .loss = 1}, kNan).overflowed == 0);  // nothing is left to halve
    CHECK(decide.state.halted == 1);
  });
}

TEST_CASE("a loss that is not finite is a failure whatever the loss scale") {
  on_every_backend([](const Backend& backend, DType dtype) {
    Decision decide{backend, dtype, {.halt = true, .scale_loss = true}, {.loss_scale = 4}};
    const StepOutcome outcome = decide({.samples = 4, .loss = 1, .not_finite = 1}, kNan);
    CHECK(outcome.overflowed == 0);
    CHECK(decide.state.halted == 1);
    CHECK(decide.state.loss_scale == 4);
  });
}

TEST_CASE("the loss scale doubles after enough updates, up to its bound, and never without being asked") {
  on_every_backend([](const Backend& backend, DType dtype) {
    Decision decide{backend, dtype, {.scale_loss = true}, {.loss_scale = 4, .steady_steps = kSteadySteps - 2}};
    CHECK(decide({.samples = 1}, 1).loss_scale == 4);
    const StepOutcome outcome = decide({.samples = 1}, 1);
    CHECK(outcome.loss_scale == 8);
    CHECK(outcome.steady_steps == 0);
    Decision bounded{
        backend, dtype, {.scale_loss = true}, {.loss_scale = kLargestLossScale, .steady_steps = kSteadySteps}};
    CHECK(bounded({.samples = 1}, 1).loss_scale == kLargestLossScale);
    Decision plain{backend, dtype, {}, {.steady_steps = kSteadySteps}};
    CHECK(plain({.samples = 1}, 1).loss_scale == 1);
  });
}
