// Fifty steps of every optimizer on every backend, against the papers' and frameworks' formulas written out here in
// double, and against what PyTorch itself computed.
#include <cmath>
#include <functional>

#include "lockstep/backend/update.h"
#include "test/backend/op_runner.h"
#include "test/backend/pytorch_optimizers.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// The run of pytorch_optimizers.py: two parameters side by side, the first of them decayed.
constexpr int kSteps = 50;
constexpr size_t kDecayed = 4, kElements = 6;
constexpr double kWeightDecay = 0.0625;
constexpr double kFtrlAccumulator = 0.1;  // its start, TensorFlow's default

double start(size_t i) { return (static_cast<double>(i) - 2) * 0.5; }
double rate(int step) { return 0.0625 / (1 + step / 20); }
double gradient(int step, size_t i, double value) {
  const double wave = std::round(1024 * std::sin(1 + 3 * step + 7 * static_cast<int>(i))) / 1024;
  return wave * (1 + static_cast<double>(i % 3)) + 0.25 * value;
}

// Parameters and slots, element by element.
struct State {
  std::vector<double> values, slot0, slot1;
};

// One update of one element by the formula under test; `t` counts from 1.
struct Element {
  double& w;
  double& a;
  double& b;
  double gradient, weight_decay, rate;
  int t;
};
using Formula = std::function<void(const Element&)>;

State run_formula(const Formula& formula, double initial0) {
  State s;
  for (size_t i = 0; i < kElements; ++i) s.values.push_back(start(i));
  s.slot0.assign(kElements, initial0);
  s.slot1.assign(kElements, 0);
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < kElements; ++i) {
      formula({s.values[i], s.slot0[i], s.slot1[i], gradient(step, i, s.values[i]), i < kDecayed ? kWeightDecay : 0,
               rate(step), step + 1});
    }
  }
  return s;
}

// The kernel, fed with gradients of twice the size and a gradient scale of one half.
State run_kernel(const Backend& backend, DType dtype, ApplyOptimizer op) {
  const bool adaptive = op.kind == OptimizerKind::lars;
  op.segments = {{.offset = 0, .count = kDecayed, .weight_decay = kWeightDecay, .adaptive = adaptive},
                 {.offset = kDecayed, .count = kElements - kDecayed}};
  auto vector_of = [&](std::vector<double> values) {
    return HostTensor{{static_cast<int64_t>(values.size())}, dtype, std::move(values)};
  };
  std::vector<HostTensor> state{vector_of({})};
  for (size_t i = 0; i < kElements; ++i) state[0].values.push_back(start(i));
  state[0].shape = {kElements};
  std::vector<double> initials = optimizer_slots(op.kind).initial;
  if (op.kind == OptimizerKind::ftrl) initials[0] = kFtrlAccumulator;
  for (double initial : initials) {
    state.push_back(vector_of(std::vector<double>(kElements, initial)));
  }
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> gradients, scalars(kUpdateScalars);
    for (size_t i = 0; i < kElements; ++i) gradients.push_back(2 * gradient(step, i, state[0].values[i]));
    scalars[kLearningRate] = rate(step);
    scalars[kGradientScale] = 0.5;
    scalars[kBias1] = 1 - std::pow(op.beta1, step + 1);
    scalars[kBias2] = 1 - std::pow(op.beta2, step + 1);
    const HostTensor inputs[] = {vector_of(gradients), vector_of(scalars)};
    run_update(backend, {dtype, op}, inputs, state);
  }
  return {state[0].values, state[1].values, state.size() > 2 ? state[2].values : std::vector<double>(kElements)};
}

void check_close(const std::vector<double>& values, const std::vector<double>& expected, double tolerance) {
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i << ": " << values[i] << " and " << expected[i]);
    CHECK(std::abs(values[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i])));
  }
}

void check_on_every_backend(const ApplyOptimizer& op, const State& expected) {
  auto check = [&](std::string_view backend, DType dtype, double tolerance) {
    INFO(backend << " in " << dtype_name(dtype));
    const State state = run_kernel(*make_backend(backend, {.threads = 2}), dtype, op);
    check_close(state.values, expected.values, tolerance);
    check_close(state.slot0, expected.slot0, tolerance);
    check_close(state.slot1, expected.slot1, tolerance);
  };
  check("reference", DType::f64, 1e-13);
  for (std::string_view backend : backend_names()) check(backend, DType::f32, 1e-6);
}

}  // namespace

TEST_CASE("fifty steps of SGD follow its formula and PyTorch") {
  const ApplyOptimizer op{.kind = OptimizerKind::sgd, .momentum = 0.75};
  const Formula formula = [](const Element& e) {
    e.a = 0.75 * e.a + e.gradient + e.weight_decay * e.w;
    e.w -= e.rate * e.a;
  };
  check_on_every_backend(op, run_formula(formula, 0));
  check_on_every_backend(op, {pytorch::sgd, pytorch::sgd_momentum, std::vector<double>(kElements)});
}

TEST_CASE("fifty steps of SGD with Nesterov's momentum follow its formula and PyTorch") {
  const ApplyOptimizer op{.kind = OptimizerKind::sgd, .momentum = 0.75, .nesterov = true};
  const Formula formula = [](const Element& e) {
    const double g = e.gradient + e.weight_decay * e.w;
    e.a = 0.75 * e.a + g;
    e.w -= e.rate * (g + 0.75 * e.a);
  };
  check_on_every_backend(op, run_formula(formula, 0));
  check_on_every_backend(op, {pytorch::nesterov, pytorch::nesterov_momentum, std::vector<double>(kElements)});
}

TEST_CASE("fifty steps of TensorFlow's RMSProp follow its formula") {
  const ApplyOptimizer op{.kind = OptimizerKind::rmsprop_tf, .momentum = 0.9, .decay = 0.9, .epsilon = 1};
  check_on_every_backend(op, run_formula(
                                 [](const Element& e) {
                                   const double g = e.gradient + e.weight_decay * e.w;
                                   e.a = 0.9 * e.a + 0.1 * g * g;
                                   e.b = 0.9 * e.b + e.rate * g / std::sqrt(e.a + 1);
                                   e.w -= e.b;
                                 },
                                 1));
}

TEST_CASE("fifty steps of PyTorch's RMSProp follow its formula and PyTorch") {
  const ApplyOptimizer op{.kind = OptimizerKind::rmsprop, .momentum = 0.5, .decay = 0.75, .epsilon = 0.0625};
  const Formula formula = [](const Element& e) {
    const double g = e.gradient + e.weight_decay * e.w;
    e.a = 0.75 * e.a + 0.25 * g * g;
    e.b = 0.5 * e.b + g / (std::sqrt(e.a) + 0.0625);
    e.w -= e.rate * e.b;
  };
  check_on_every_backend(op, run_formula(formula, 0));
  check_on_every_backend(op, {pytorch::rmsprop, pytorch::rmsprop_mean_square, pytorch::rmsprop_momentum});
}

TEST_CASE("fifty steps of Adam follow its formula and PyTorch") {
  const ApplyOptimizer op{.kind = OptimizerKind::adam, .beta1 = 0.875, .beta2 = 0.9375, .epsilon = 0.03125};
  const Formula formula = [](const Element& e) {
    const double g = e.gradient + e.weight_decay * e.w;
    e.a = 0.875 * e.a + 0.125 * g;
    e.b = 0.9375 * e.b + 0.0625 * g * g;
    const double mean = e.a / (1 - std::pow(0.875, e.t)), square = e.b / (1 - std::pow(0.9375, e.t));
    e.w -= e.rate * mean / (std::sqrt(square) + 0.03125);
  };
  check_on_every_backend(op, run_formula(formula, 0));
  check_on_every_backend(op, {pytorch::adam, pytorch::adam_exp_avg, pytorch::adam_exp_avg_sq});
}

TEST_CASE("fifty steps of AdamW follow its formula and PyTorch") {
  const ApplyOptimizer op{.kind = OptimizerKind::adamw, .beta1 = 0.875, .beta2 = 0.9375, .epsilon = 1e-8};
  const Formula formula = [](const Element& e) {
    e.a = 0.875 * e.a + 0.125 * e.gradient;
    e.b = 0.9375 * e.b + 0.0625 * e.gradient * e.gradient;
    const double mean = e.a / (1 - std::pow(0.875, e.t)), square = e.b / (1 - std::pow(0.9375, e.t));
    e.w = e.w * (1 - e.rate * e.weight_decay) - e.rate * mean / (std::sqrt(square) + 1e-8);
  };
  check_on_every_backend(op, run_formula(formula, 0));
  check_on_every_backend(op, {pytorch::adamw, pytorch::adamw_exp_avg, pytorch::adamw_exp_avg_sq});
}

// With beta2 = 0.999 the share of a new square, 1 - beta2, must not be taken in float32.
TEST_CASE("fifty steps of AdamW with its usual decays follow its formula") {
  const ApplyOptimizer op{.kind = OptimizerKind::adamw, .epsilon = 1e-8};
  check_on_every_backend(op, run_formula(
                                 [](const Element& e) {
                                   e.a = 0.9 * e.a + 0.1 * e.gradient;
                                   e.b = 0.999 * e.b + 0.001 * e.gradient * e.gradient;
                                   const double mean = e.a / (1 - std::pow(0.9, e.t));
                                   const double square = e.b / (1 - std::pow(0.999, e.t));
                                   e.w -= e.rate * (mean / (std::sqrt(square) + 1e-8) + e.weight_decay * e.w);
                                 },
                                 0));
}

TEST_CASE("fifty steps of LARS follow the paper, the second parameter being left out") {
  const ApplyOptimizer op{.kind = OptimizerKind::lars, .momentum = 0.9, .trust = 0.125};
  State s;
  for (size_t i = 0; i < kElements; ++i) s.values.push_back(start(i));
  s.slot0.assign(kElements, 0);
  s.slot1.assign(kElements, 0);
  for (int step = 0; step < kSteps; ++step) {
    double weights = 0, gradients = 0, g[kElements];
    for (size_t i = 0; i < kElements; ++i) g[i] = gradient(step, i, s.values[i]);
    for (size_t i = 0; i < kDecayed; ++i) {
      weights += s.values[i] * s.values[i];
      gradients += g[i] * g[i];
    }
    const double local = 0.125 * std::sqrt(weights) / (std::sqrt(gradients) + kWeightDecay * std::sqrt(weights));
    for (size_t i = 0; i < kElements; ++i) {
      const double factor = i < kDecayed ? local : 1, decay = i < kDecayed ? kWeightDecay : 0;
      s.slot0[i] = 0.9 * s.slot0[i] + rate(step) * factor * (g[i] + decay * s.values[i]);
      s.values[i] -= s.slot0[i];
    }
  }
  check_on_every_backend(op, s);
}

TEST_CASE("a segment's factor is a factor of the learning rate, for every optimizer on every backend") {
  for (std::string_view name : backend_names()) {
    const auto backend = make_backend(name, {.threads = 2});
    for (const OptimizerSlots& row : optimizers()) {
      INFO(name << ", " << row.name);
      const bool adaptive = row.kind == OptimizerKind::lars;
      const auto values_after = [&](double factor, double rate) {
        const ApplyOptimizer op{
            .kind = row.kind,
            .segments = {{.count = 2, .weight_decay = 0.125, .rate_factor = factor, .adaptive = adaptive},
                         {.offset = 2, .count = 2, .rate_factor = 1, .adaptive = adaptive}}};
        std::vector<double> scalars(kUpdateScalars);
        scalars[kLearningRate] = rate;
        scalars[kGradientScale] = scalars[kBias1] = scalars[kBias2] = 1;
        const HostTensor inputs[] = {{{4}, DType::f32, {1, -2, 3, -4}}, {{kUpdateScalars}, DType::f32, scalars}};
        std::vector<HostTensor> state{{{4}, DType::f32, {0.5, 1, -1, 2}}};
        for (double initial : row.initial) state.push_back({{4}, DType::f32, std::vector<double>(4, initial + 0.5)});
        run_update(*backend, {DType::f32, op}, inputs, state);
        return state[0].values;
      };
      const auto scaled = values_after(0.25, 0.5), slow = values_after(1, 0.125), fast = values_after(1, 0.5);
      CHECK(std::vector(scaled.begin(), scaled.begin() + 2) == std::vector(slow.begin(), slow.begin() + 2));
      CHECK(std::vector(scaled.begin() + 2, scaled.end()) == std::vector(fast.begin() + 2, fast.end()));
      CHECK(scaled[0] != fast[0]);
    }
  }
}

TEST_CASE("LARS moves a parameter of norm 0, or without a gradient, at the plain rate") {
  for (std::string_view name : backend_names()) {
    INFO(name);
    ApplyOptimizer op{.kind = OptimizerKind::lars, .momentum = 0};
    op.segments = {{.offset = 0, .count = 2, .adaptive = true}, {.offset = 2, .count = 2, .adaptive = true}};
    std::vector<double> scalars(kUpdateScalars);
    scalars[kLearningRate] = 0.5;
    scalars[kGradientScale] = 1;
    const HostTensor inputs[] = {{{4}, DType::f32, {1, -2, 0, 0}}, {{kUpdateScalars}, DType::f32, scalars}};
    HostTensor state[] = {{{4}, DType::f32, {0, 0, 3, 4}}, {{4}, DType::f32, {0, 0, 0, 0}}};
    run_update(*make_backend(name, {}), {DType::f32, op}, inputs, state);
    CHECK(state[0].values == std::vector<double>{-0.5, 1, 3, 4});
  }
}

TEST_CASE("fifty steps of FTRL follow TensorFlow's formula, exact zeros included") {
  auto sign = [](double x) { return x > 0 ? 1.0 : -1.0; };
  for (const double power : {-0.5, -0.25, 0.0}) {
    for (const double l1 : {0.0, 0.75}) {
      INFO("learning_rate_power " << power << ", l1 " << l1);
      const ApplyOptimizer op{.kind = OptimizerKind::ftrl, .l1 = l1, .l2 = 0.125, .learning_rate_power = power};
      const State expected = run_formula(
          [&](const Element& e) {
            const double g = e.gradient + e.weight_decay * e.w;
            const double accumulator = e.a + g * g;
            e.b += g - (std::pow(accumulator, -power) - std::pow(e.a, -power)) / e.rate * e.w;
            const double quadratic = std::pow(accumulator, -power) / e.rate + 2 * 0.125;
            e.w = std::abs(e.b) > l1 ? (sign(e.b) * l1 - e.b) / quadratic : 0;
            e.a = accumulator;
          },
          kFtrlAccumulator);
      check_on_every_backend(op, expected);
    }
  }
}
