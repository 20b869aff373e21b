// The parameter update on every backend in float32 and on the reference backend in float64 too: optimizers against
// tables computed apart in 40-digit decimal arithmetic, statistics against the joint batch.
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "lockstep/backend/step_header.h"
#include "lockstep/backend/update.h"
#include "lockstep/base/random.h"
#include "lockstep/tensor/half.h"
#include "test/backend/op_runner.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// Calls body(backend, element type, relative tolerance) for every backend.
template <class Body>
void on_every_backend(Body&& body) {
  auto run = [&](std::string_view name, DType dtype, double tolerance) {
    INFO(name << " in " << dtype_name(dtype));
    body(*make_backend(name, {.threads = 2}), dtype, tolerance);
  };
  run("reference", DType::f64, 1e-14);
  for (std::string_view name : backend_names()) run(name, DType::f32, 2e-6);
}

HostTensor vector_of(DType dtype, std::vector<double> values) {
  return {{static_cast<int64_t>(values.size())}, dtype, std::move(values)};
}

void check_near(const std::vector<double>& values, const std::vector<double>& expected, double tolerance) {
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i);
    CHECK(values[i] == Approx(expected[i]).epsilon(tolerance).margin(tolerance));
  }
}

// Five steps on three parameters, of which the first two are decayed; a fourth element, between the segments, is
// padding that no update may touch.
struct OptimizerTable {
  ApplyOptimizer op;
  std::vector<std::vector<double>> parameters;  // after each step
  std::vector<std::vector<double>> slots;       // after the last
};

constexpr double kPadding = 77;

std::vector<double> padded(const std::vector<double>& values) { return {values[0], values[1], kPadding, values[2]}; }

void check_optimizer(const OptimizerTable& table) {
  const std::vector<std::vector<double>> gradients = {
      {2, -1, 0.5}, {-3, 0.25, 8}, {0, 6, -4}, {1.5, -2.5, 0.125}, {-0.75, 4, -1}};
  const double rates[] = {0.1, 0.1, 0.05, 0.05, 0.025};
  ApplyOptimizer op = table.op;
  op.segments = {{.offset = 0, .count = 2, .weight_decay = 0.0625}, {.offset = 3, .count = 1, .weight_decay = 0}};
  on_every_backend([&](const Backend& backend, DType dtype, double tolerance) {
    std::vector<HostTensor> state{vector_of(dtype, padded({0.5, -1.25, 2}))};
    for (double initial : optimizer_slots(op.kind).initial) {
      state.push_back(vector_of(dtype, padded({initial, initial, initial})));
    }
    for (size_t t = 0; t < gradients.size(); ++t) {
      std::vector<double> scalars(kUpdateScalars);
      scalars[kLearningRate] = rates[t];
      scalars[kGradientScale] = 0.25;
      scalars[kBias1] = 1 - std::pow(op.beta1, static_cast<double>(t + 1));
      scalars[kBias2] = 1 - std::pow(op.beta2, static_cast<double>(t + 1));
      const HostTensor inputs[] = {vector_of(dtype, padded(gradients[t])), vector_of(dtype, scalars)};
      run_update(backend, {dtype, op}, inputs, state);
      INFO("after step " << t + 1);
      check_near(state[0].values, padded(table.parameters[t]), tolerance);
    }
    REQUIRE(state.size() == 1 + table.slots.size());
    for (size_t k = 0; k < table.slots.size(); ++k) {
      check_near(state[k + 1].values, padded(table.slots[k]), tolerance);
    }
  });
}

}  // namespace

TEST_CASE("each optimizer names its slots and their start values") {
  const OptimizerSlots& rmsprop = optimizer_slots(OptimizerKind::rmsprop_tf);
  CHECK(rmsprop.name == "rmsprop_tf");
  CHECK(rmsprop.slots == std::vector<std::string_view>{"mean_square", "momentum"});
  CHECK(rmsprop.initial == std::vector<double>{1, 0});
  CHECK(optimizer_slots(OptimizerKind::sgd).slots == std::vector<std::string_view>{"momentum"});
  CHECK(optimizer_slots(OptimizerKind::adam).slots == std::vector<std::string_view>{"exp_avg", "exp_avg_sq"});
  CHECK(optimizer_slots(OptimizerKind::adamw).slots == std::vector<std::string_view>{"exp_avg", "exp_avg_sq"});
}

TEST_CASE("SGD with momentum follows its table") {
  check_optimizer({.op = {.kind = OptimizerKind::sgd, .momentum = 0.5},
                   .parameters = {{0.44687500000000002, -1.2171875000000001, 1.9875},
                                  {0.49251953124999998, -1.199423828125, 1.78125},
                                  {0.50239154052734381, -1.2662347106933594, 1.7796875000000001},
                                  {0.48700757160186769, -1.2644331685066224, 1.77734375},
                                  {0.48708813003987073, -1.2870071061341464, 1.7830078125}},
                   .slots = {{-0.003222337520122528, 0.90295750510096551, -0.2265625}}});
}

TEST_CASE("RMSProp with epsilon inside the root follows its table") {
  check_optimizer({.op = {.kind = OptimizerKind::rmsprop_tf, .momentum = 0.5, .decay = 0.75, .epsilon = 0.5},
                   .parameters = {{0.45377036906794643, -1.220962577033972, 1.9888370885562809},
                                  {0.49531462419352495, -1.2051166616664415, 1.8440923105830205},
                                  {0.51458294581845387, -1.2564632596528909, 1.8077661071991777},
                                  {0.50345036856025649, -1.2516587396194363, 1.7883553184079084},
                                  {0.50211053665302841, -1.2691898386715641, 1.784096355797699}},
                   .slots = {{0.35185878801529874, 0.83648912227450256, 0.8168487548828125},
                             {0.0013398319072280181, 0.01753109905212781, 0.0042589626102095476}}});
}

TEST_CASE("AdamW decays apart from the gradient and follows its table") {
  check_optimizer(
      {.op = {.kind = OptimizerKind::adamw, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.125},
       .parameters = {{0.416875, -1.1755208333333333, 1.95},
                      {0.45702355728192318, -1.1540660947129475, 1.8661110118339035},
                      {0.46714969746500978, -1.1879375456201202, 1.8654916757939088},
                      {0.45416694087541831, -1.1871339063629731, 1.8644267278403375},
                      {0.45503225109546452, -1.1983066599668186, 1.8673597902303738}},
       .slots = {{-0.03125, 0.52734375, -0.11328125}, {0.1142578125, 0.6450042724609375, 0.5795440673828125}}});
}

TEST_CASE("an update changes the elements of its segments, wherever these begin and end, and no others") {
  std::vector<UpdateSegment> segments;
  int64_t elements = 0;
  for (const int64_t count : {1, 2, 3, 4, 5, 8, 11, 8192 + 3, 2 * 8192 + 6, 1}) {
    for (int64_t gap = 1; gap <= 4; ++gap) {
      segments.push_back({.offset = elements + gap, .count = count});
      elements += gap + count;
    }
  }
  ++elements;
  std::vector<double> before, gradients, scalars(kUpdateScalars);
  for (int64_t i = 0; i < elements; ++i) {
    before.push_back(static_cast<double>(i % 1000));
    gradients.push_back(static_cast<double>(i % 777));
  }
  std::vector<double> expected = before, slot(before.size(), 0);
  for (const UpdateSegment& segment : segments) {
    for (auto i = static_cast<size_t>(segment.offset); i < static_cast<size_t>(segment.offset + segment.count); ++i) {
      slot[i] = gradients[i];
      expected[i] -= gradients[i] / 2;
    }
  }
  scalars[kLearningRate] = 0.5;
  scalars[kGradientScale] = 1;
  on_every_backend([&](const Backend& backend, DType dtype, double) {
    std::vector<HostTensor> state{vector_of(dtype, before), vector_of(dtype, std::vector<double>(before.size(), 0))};
    const HostTensor inputs[] = {vector_of(dtype, gradients), vector_of(dtype, scalars)};
    run_update(backend, {dtype, ApplyOptimizer{.kind = OptimizerKind::sgd, .segments = segments}}, inputs, state);
    CHECK((state[0].values == expected));  // no rounding: halves of small numbers
    CHECK((state[1].values == slot));
  });
}

TEST_CASE("the moving average moves by one minus its decay") {
  on_every_backend([](const Backend& backend, DType dtype, double tolerance) {
    std::vector<double> scalars(kUpdateScalars);
    scalars[kAverageDecay] = 0.75;
    const HostTensor inputs[] = {vector_of(dtype, {4, -2, 9}), vector_of(dtype, scalars)};
    HostTensor averages[] = {vector_of(dtype, {0, 2, 5})};
    run_update(backend, {dtype, ApplyAverage{2}}, inputs, averages);
    check_near(averages[0].values, {1, 1, 5}, tolerance);

    std::vector<double> values, expected;
    for (int i = 0; i < 4103; ++i) {
      values.push_back(4 * (i % 1000));
      expected.push_back(i < 4102 ? i % 1000 : 0);
    }
    const HostTensor more[] = {vector_of(dtype, values), vector_of(dtype, scalars)};
    HostTensor from_zero[] = {vector_of(dtype, std::vector<double>(values.size(), 0))};
    run_update(backend, {dtype, ApplyAverage{4102}}, more, from_zero);
    CHECK((from_zero[0].values == expected));
  });
}

TEST_CASE("values are added to sums, as many as asked for") {
  on_every_backend([](const Backend& backend, DType dtype, double) {
    const HostTensor inputs[] = {vector_of(dtype, {1, -2, 0.5})};
    HostTensor sums[] = {vector_of(dtype, {10, 20, 30})};
    run_update(backend, {dtype, AddToSums{2}}, inputs, sums);
    CHECK(sums[0].values == std::vector<double>{11, 18, 30});
  });
}

TEST_CASE("parts of an arena are added wherever they begin") {
  for (std::string_view name : backend_names()) {
    INFO(name);
    const auto backend = make_backend(name, {.threads = 1});
    const auto stream = backend->make_stream();
    std::vector<float> values(107), sums(107, 1);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const Buffer in = backend->allocate(107 * sizeof(float)), out = backend->allocate(107 * sizeof(float));
    backend->copy(*stream, in.data(), values.data(), in.bytes());
    backend->copy(*stream, out.data(), sums.data(), out.bytes());
    const std::array<void*, 1> inputs{in.as<float>() + 3}, outputs{out.as<float>() + 3};
    backend->compile(UpdateOp{DType::f32, AddToSums{100}})->run({*stream, inputs, outputs});
    backend->copy(*stream, sums.data(), out.data(), out.bytes());
    stream->wait();
    for (size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == (i >= 3 && i < 103 ? 1 + values[i] : 1));
  }
}

TEST_CASE("the sum of squares is kept in double and is finite only when all values are") {
  on_every_backend([](const Backend& backend, DType dtype, double) {
    auto sum_of_squares = [&](std::vector<double> values) {
      const SumOfSquares op{static_cast<int64_t>(values.size())};
      const HostTensor inputs[] = {vector_of(dtype, std::move(values))};
      HostTensor sum[] = {{{1}, DType::f64, {-1}}};
      run_update(backend, {dtype, op}, inputs, sum);
      return sum[0].values[0];
    };
    CHECK(sum_of_squares({3, -4, 0.5}) == 25.25);
    CHECK(sum_of_squares({0x1p100, 0x1p-10}) == 0x1p200);  // its square is beyond float32
    std::vector<double> many(1000, 0.5);
    CHECK(sum_of_squares(many) == 250);
    many[571] = std::numeric_limits<double>::infinity();
    CHECK_FALSE(std::isfinite(sum_of_squares(many)));
    many[571] = std::numeric_limits<double>::quiet_NaN();
    CHECK_FALSE(std::isfinite(sum_of_squares(many)));
  });
}

// What a kernel makes of memory, as bits.
template <class To, class From>
std::vector<To> converted(const Backend& backend, const UpdateOp& op, const std::vector<From>& from) {
  const auto stream = backend.make_stream();
  const Buffer in = backend.allocate(from.size() * sizeof(From)), out = backend.allocate(from.size() * sizeof(To));
  backend.copy(*stream, in.data(), from.data(), in.bytes());
  const std::array<void*, 1> inputs{in.data()}, outputs{out.data()};
  backend.compile(op)->run({*stream, inputs, outputs});
  std::vector<To> to(from.size());
  backend.copy(*stream, to.data(), out.data(), out.bytes());
  stream->wait();
  return to;
}

TEST_CASE("values become 16-bit floats and come back, on every backend with the same bits") {
  std::vector<float> values = {0, -1.5F, 1e-7F, 70000, -1e30F, 3.14159265F, std::numeric_limits<float>::infinity()};
  RandomStream random(4);
  while (values.size() < 1001)
    values.push_back(static_cast<float>(std::ldexp(random.normal(), static_cast<int>(values.size() % 40) - 30)));
  const auto count = static_cast<int64_t>(values.size());
  for (const DType type : {DType::bf16, DType::f16}) {
    std::vector<uint16_t> expected(values.size());
    to_half(type, values, expected);
    std::vector<float> back(values.size());
    from_half(type, expected, back);
    for (std::string_view name : backend_names()) {
      INFO(name << " in " << dtype_name(type));
      const auto backend = make_backend(name, {.threads = 2});
      CHECK(converted<uint16_t>(*backend, {DType::f32, DowncastValues{count, type}}, values) == expected);
      CHECK(converted<float>(*backend, {DType::f32, UpcastValues{count, type}}, expected) == back);
    }
  }
}

TEST_CASE("the first value that is not finite is found, where the sum of squares says that there is one") {
  on_every_backend([](const Backend& backend, DType dtype, double) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr size_t kPlace = offsetof(StepOutcome, bad_gradient) / sizeof(double);
    auto first_non_finite = [&](std::vector<double> values, double squares) {
      const FindNonFinite op{static_cast<int64_t>(values.size())};
      const HostTensor inputs[] = {vector_of(dtype, std::move(values)), {{1}, DType::f64, {squares}}};
      std::vector<double> before(sizeof(StepOutcome) / sizeof(double), 5);
      before[kPlace] = -1;
      HostTensor outcome[] = {vector_of(DType::f64, before)};
      run_update(backend, {dtype, op}, inputs, outcome);
      CHECK(outcome[0].values[0] == 5);
      return outcome[0].values[kPlace];
    };
    std::vector<double> values(3000, 1);
    CHECK(first_non_finite(values, 3000) == -1);
    values[2900] = nan;
    CHECK(first_non_finite(values, nan) == 2900);
    values[700] = -std::numeric_limits<double>::infinity();
    values[701] = nan;
    CHECK(first_non_finite(values, nan) == 700);
    CHECK(first_non_finite(values, 1) == -1);
    values[0] = nan;
    CHECK(first_non_finite(values, nan) == 0);
  });
}

TEST_CASE("two ranks' moments give the running statistics of their joint batch") {
  on_every_backend([](const Backend& backend, DType dtype, double tolerance) {
    constexpr int64_t kChannels = 3, kSpatial = 20;
    const double momentum = 0.1;
    // Ranks of 2 and 5 samples, whose means lie apart, and running statistics from before.
    const HostTensor ones = vector_of(dtype, std::vector<double>(kChannels, 1));
    const HostTensor running_mean = vector_of(dtype, {1, -2, 0.5}), running_var = vector_of(dtype, {1, 0.25, 4});
    std::vector<double> sums(2 * kChannels), values[kChannels];
    double samples = 0;
    for (int64_t n : {2, 5}) {
      HostTensor x{{n, kChannels, 4, 5}, dtype, {}};
      RandomStream random(static_cast<uint64_t>(n));
      for (int64_t i = 0; i < x.shape.elements(); ++i) {
        x.values.push_back(static_cast<float>(random.normal() + 0.5 * static_cast<double>(n)));
        values[i / kSpatial % kChannels].push_back(x.values.back());
      }
      const HostTensor inputs[] = {x, ones, ones, running_mean};
      const Step steps[] = {{BatchNorm{}, {0, 1, 2}}, {BatchMoments{n}, {5, 6, 3}}};
      const auto result = run_program(backend, inputs, steps).values;
      for (size_t c = 0; c < kChannels; ++c) {
        sums[c] += result[result.size() - 2].values[c];
        sums[kChannels + c] += result[result.size() - 1].values[c];
      }
      samples += static_cast<double>(n);
    }
    std::vector<double> scalars(kUpdateScalars);
    scalars[kSampleCount] = samples;
    const HostTensor inputs[] = {vector_of(dtype, sums), vector_of(dtype, scalars)};
    std::vector<double> before = running_mean.values;
    before.insert(before.end(), running_var.values.begin(), running_var.values.end());
    HostTensor statistics[] = {vector_of(dtype, before)};
    const ApplyStatistics op{.momentum = momentum, .entries = {{0, kChannels, kChannels, kSpatial}}};
    run_update(backend, {dtype, op}, inputs, statistics);

    std::vector<double> expected = before;
    for (size_t c = 0; c < kChannels; ++c) {
      const auto count = static_cast<double>(values[c].size());
      double mean = 0, squares = 0;
      for (double value : values[c]) mean += value / count;
      for (double value : values[c]) squares += (value - mean) * (value - mean);
      expected[c] += momentum * (mean - before[c]);
      expected[kChannels + c] += momentum * (squares / (count - 1) - before[kChannels + c]);
    }
    check_near(statistics[0].values, expected, std::max(tolerance, 1e-12));
  });
}
