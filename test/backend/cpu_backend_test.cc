// The CPU backend against the reference backend in float64, over the shared operation cases.
#include <array>
#include <cmath>
#include <limits>

#include "lockstep/backend/cpu_library.h"
#include "lockstep/backend/update.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "test/backend/lowered_cases.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// The same program behind a window of one pixel, which hands every image on unchanged but in blocks of channels, the
// format that the CPU backend's convolutions and pools write.
OpCase in_blocks(const OpCase& op_case) {
  OpCase result = op_case;
  result.steps.clear();
  const int inputs = static_cast<int>(op_case.inputs.size());
  std::vector<int> number(op_case.inputs.size());
  int next = inputs;
  for (int i = 0; i < inputs; ++i) {
    const CaseInput& input = op_case.inputs[static_cast<size_t>(i)];
    const bool image = input.shape.rank() == 4 && input.fill == Fill::activation;
    if (image) result.steps.push_back({AvgPool{}, {i}});
    number[static_cast<size_t>(i)] = image ? next++ : i;
  }
  for (Step step : op_case.steps) {
    for (int& input : step.inputs) input = input < inputs ? number[static_cast<size_t>(input)] : input + next - inputs;
    result.steps.push_back(std::move(step));
  }
  return result;
}

std::unique_ptr<Backend> reference_backend() { return make_backend("reference", {.threads = 1}); }

void check_against_reference(const Backend& cpu, const OpCase& op_case) {
  INFO(op_case.name);
  const auto reference = reference_backend();
  const ProgramResult expected = run_program(*reference, case_inputs(op_case, DType::f64), op_case.steps);
  const ProgramResult actual = run_program(cpu, case_inputs(op_case, DType::f32), op_case.steps);
  REQUIRE(actual.values.size() == expected.values.size());
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (expected.values[i].dtype == DType::u8) continue;  // saved blobs are each backend's own
    INFO("value " << i);
    REQUIRE(actual.values[i].shape == expected.values[i].shape);
    CHECK(relative_error(actual.values[i].values, expected.values[i].values) < 1e-5);
  }
}

// Compiles an operation on plain tensors as the pipeline would.
std::unique_ptr<Kernel> compile_chosen(const Backend& backend, const Op& op, std::vector<TensorDesc> inputs) {
  std::vector<TensorDesc> outputs = infer(op, inputs);
  const FormatChoice choice = backend.choose_formats(op, inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].format = choice.inputs[i];
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i].format = choice.outputs[i];
  return backend.compile(op, inputs, outputs);
}

TensorDesc plain(Shape shape) { return {shape, DType::f32, {}}; }

struct ConvGeometry {
  int64_t in, out, size, kernel_h, kernel_w, stride, pad_h, pad_w;
};

// Every convolution of Inception-v3 (the auxiliary head included), then those of the CIFAR network.
constexpr ConvGeometry kConvolutions[] = {
    {3, 32, 299, 3, 3, 2, 0, 0},   {32, 32, 149, 3, 3, 1, 0, 0},  {32, 64, 147, 3, 3, 1, 1, 1},
    {64, 80, 73, 1, 1, 1, 0, 0},   {80, 192, 73, 3, 3, 1, 0, 0},  {192, 64, 35, 1, 1, 1, 0, 0},
    {192, 48, 35, 1, 1, 1, 0, 0},  {48, 64, 35, 5, 5, 1, 2, 2},   {64, 96, 35, 3, 3, 1, 1, 1},
    {96, 96, 35, 3, 3, 1, 1, 1},   {192, 32, 35, 1, 1, 1, 0, 0},  {256, 64, 35, 1, 1, 1, 0, 0},
    {256, 48, 35, 1, 1, 1, 0, 0},  {288, 64, 35, 1, 1, 1, 0, 0},  {288, 48, 35, 1, 1, 1, 0, 0},
    {288, 384, 35, 3, 3, 2, 0, 0}, {96, 96, 35, 3, 3, 2, 0, 0},   {768, 192, 17, 1, 1, 1, 0, 0},
    {768, 128, 17, 1, 1, 1, 0, 0}, {128, 128, 17, 1, 7, 1, 0, 3}, {128, 192, 17, 7, 1, 1, 3, 0},
    {128, 128, 17, 7, 1, 1, 3, 0}, {128, 192, 17, 1, 7, 1, 0, 3}, {768, 160, 17, 1, 1, 1, 0, 0},
    {160, 160, 17, 1, 7, 1, 0, 3}, {160, 192, 17, 7, 1, 1, 3, 0}, {160, 160, 17, 7, 1, 1, 3, 0},
    {160, 192, 17, 1, 7, 1, 0, 3}, {192, 192, 17, 1, 7, 1, 0, 3}, {192, 192, 17, 7, 1, 1, 3, 0},
    {768, 128, 5, 1, 1, 1, 0, 0},  {128, 768, 5, 5, 5, 1, 0, 0},  {192, 320, 17, 3, 3, 2, 0, 0},
    {192, 192, 17, 3, 3, 2, 0, 0}, {1280, 320, 8, 1, 1, 1, 0, 0}, {1280, 384, 8, 1, 1, 1, 0, 0},
    {384, 384, 8, 1, 3, 1, 0, 1},  {384, 384, 8, 3, 1, 1, 1, 0},  {1280, 448, 8, 1, 1, 1, 0, 0},
    {448, 384, 8, 3, 3, 1, 1, 1},  {1280, 192, 8, 1, 1, 1, 0, 0}, {2048, 320, 8, 1, 1, 1, 0, 0},
    {2048, 384, 8, 1, 1, 1, 0, 0}, {2048, 448, 8, 1, 1, 1, 0, 0}, {2048, 192, 8, 1, 1, 1, 0, 0},
    {3, 64, 32, 5, 5, 1, 2, 2},    {64, 64, 16, 5, 5, 1, 2, 2}};

void check_fast(const Backend& backend, const Op& op, std::vector<TensorDesc> inputs) {
  INFO(op_name(op) << " of " << inputs[0].to_string());
  CHECK_THAT(compile_chosen(backend, op, std::move(inputs))->implementation(), !ContainsSubstring("ref"));
}

// Runs a kernel on zeros with output 0 full of NaN before, and returns what output 0 holds then.
std::vector<float> output_over_garbage(const Backend& backend, const Op& op, std::vector<TensorDesc> inputs) {
  std::vector<TensorDesc> outputs = infer(op, inputs);
  const FormatChoice choice = backend.choose_formats(op, inputs, outputs);
  std::vector<Buffer> buffers;
  const auto place = [&](TensorDesc& desc, Format format) {
    desc.format = format;
    buffers.push_back(backend.allocate(backend.storage_bytes(desc)));
    return buffers.back().data();
  };
  std::vector<void*> in, out;
  for (size_t i = 0; i < inputs.size(); ++i) in.push_back(place(inputs[i], choice.inputs[i]));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (static_cast<int>(i) == saved_output(op)) {
      outputs[i].shape = {static_cast<int64_t>(backend.saved_bytes(op, inputs))};
    }
    out.push_back(place(outputs[i], choice.outputs[i]));
  }
  const std::span result(static_cast<float*>(out[0]), backend.storage_bytes(outputs[0]) / sizeof(float));
  std::ranges::fill(result, std::numeric_limits<float>::quiet_NaN());
  const std::unique_ptr<Kernel> kernel = backend.compile(op, inputs, outputs);
  const Buffer workspace = backend.allocate(kernel->workspace_bytes());
  const std::unique_ptr<Stream> stream = backend.make_stream();
  kernel->run({*stream, in, out, workspace.data()});
  return {result.begin(), result.end()};
}

using Tensors = std::vector<HostTensor>;

// `outputs` are read and written.
void check_update(const auto& op, const Tensors& inputs, const Tensors& outputs) {
  const auto in_double = [](Tensors tensors) {
    for (HostTensor& tensor : tensors) tensor.dtype = DType::f64;
    return tensors;
  };
  Tensors expected = in_double(outputs);
  run_update(*reference_backend(), {DType::f64, op}, in_double(inputs), expected);
  for (const int threads : {1, 2}) {
    INFO(threads << " threads");
    Tensors actual = outputs;
    run_update(*make_backend("cpu", {.threads = threads}), {DType::f32, op}, inputs, actual);
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(relative_error(actual[i].values, expected[i].values) < 1e-6);
    }
  }
}

HostTensor random_tensor(int64_t count, uint64_t key, double low, double high) {
  HostTensor tensor{{count}, DType::f32, {}};
  RandomStream random(key);
  for (int64_t i = 0; i < count; ++i) {
    tensor.values.push_back(double{static_cast<float>(random.uniform(low, high))});
  }
  return tensor;
}

// Exact in float: rate 1/8, gradients of 4 samples, Adam's corrections of step 2 or so, decay 3/4.
HostTensor update_scalars() { return {{kUpdateScalars}, DType::f32, {0.125, 0.25, 0.1875, 0.0625, 0.75, 4, 0, 0}}; }

}  // namespace

TEST_CASE("the cpu backend computes what the reference backend computes, on plain tensors") {
  const int threads = GENERATE(1, 2);
  const auto cpu = make_backend("cpu", {.threads = threads});
  INFO(threads << " threads");
  for (const OpCase& op_case : op_cases()) check_against_reference(*cpu, op_case);
}

TEST_CASE("the cpu backend computes what the reference backend computes, on blocked tensors") {
  const int threads = GENERATE(1, 2);
  const auto cpu = make_backend("cpu", {.threads = threads});
  INFO(threads << " threads");
  for (const OpCase& op_case : op_cases()) check_against_reference(*cpu, in_blocks(op_case));
}

TEST_CASE("the cpu backend computes in bfloat16 what the reference backend computes in float64") {
  if (!cpu_computes_bf16()) {
    WARN("skipped, this processor has no instructions for bfloat16");
    return;
  }
  constexpr double kBound = 2e-2;  // a few roundings to 8 bits
  const auto cpu = make_backend("cpu", {.threads = GENERATE(1, 2)});
  for (const OpCase& op_case : op_cases()) {
    if (computes_in_float32(op_case)) continue;
    check_lowered(*cpu, op_case, DType::bf16, kBound);
    check_lowered(*cpu, in_blocks(op_case), DType::bf16, kBound);
  }
}

TEST_CASE("kernels of the cpu backend that may work in place compute the same bits there, on blocked tensors") {
  const auto cpu = make_backend("cpu", {.threads = 2});
  for (const OpCase& plain_case : op_cases()) {
    const OpCase op_case = in_blocks(plain_case);
    INFO(op_case.name);
    const auto inputs = case_inputs(op_case, DType::f32);
    const ProgramResult apart = run_program(*cpu, inputs, op_case.steps);
    const ProgramResult in_place = run_program(*cpu, inputs, op_case.steps, {.in_place = true});
    for (size_t i = 0; i < apart.values.size(); ++i) {
      INFO("value " << i);
      CHECK(in_place.values[i].values == apart.values[i].values);
    }
  }
}

TEST_CASE("the cpu backend computes the same bits every time") {
  const int threads = GENERATE(1, 2);
  const auto cpu = make_backend("cpu", {.threads = threads});
  for (const OpCase& op_case : op_cases()) {
    INFO(op_case.name);
    const auto inputs = case_inputs(op_case, DType::f32);
    const ProgramResult first = run_program(*cpu, inputs, op_case.steps);
    const ProgramResult again = run_program(*cpu, inputs, op_case.steps);
    for (size_t i = 0; i < first.values.size(); ++i) CHECK(again.values[i].values == first.values[i].values);
  }
}

TEST_CASE("the number of threads changes no bit of batch norm's results on the cpu backend") {
  const auto one = make_backend("cpu", {.threads = 1});
  const auto more = make_backend("cpu", {.threads = GENERATE(2, 3, 5)});  // whole blocks of channels, or single tiles
  size_t tried = 0;
  for (const OpCase& plain_case : op_cases()) {
    if (!op_name(plain_case.steps[0].op).starts_with("BatchNorm")) continue;
    ++tried;
    for (const OpCase& op_case : {plain_case, in_blocks(plain_case)}) {
      INFO(op_case.name);
      const auto inputs = case_inputs(op_case, DType::f32);
      const ProgramResult a = run_program(*one, inputs, op_case.steps);
      const ProgramResult b = run_program(*more, inputs, op_case.steps);
      for (size_t i = 0; i < a.values.size(); ++i) CHECK(a.values[i].values == b.values[i].values);
    }
  }
  CHECK(tried > 3);
}

TEST_CASE("dropout on the cpu backend makes the reference backend's bits in every format") {
  const auto cpu = make_backend("cpu", {.threads = 2});
  for (const OpCase& op_case : op_cases()) {
    if (!std::holds_alternative<Dropout>(op_case.steps[0].op)) continue;
    INFO(op_case.name);
    const auto inputs = case_inputs(op_case, DType::f32);
    const OpCase blocked = in_blocks(op_case);
    const auto expected = run_program(*reference_backend(), inputs, op_case.steps).values.back();
    CHECK(run_program(*cpu, inputs, op_case.steps).values.back().values == expected.values);
    CHECK(run_program(*cpu, inputs, blocked.steps).values.back().values == expected.values);
  }
}

TEST_CASE("no operation of the bundled networks falls to a slow path of the cpu backend") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  for (const ConvGeometry& g : kConvolutions) {
    const Window window{g.kernel_h, g.kernel_w, g.stride, g.stride, g.pad_h, g.pad_w};
    const bool bias = g.kernel_h == 5 && g.stride == 1 && g.in != 48;
    const TensorDesc x = plain({2, g.in, g.size, g.size}), weights = plain({g.out, g.in, g.kernel_h, g.kernel_w});
    const TensorDesc y = infer(Conv2d{window}, std::array{x, weights})[0];
    if (bias) {
      check_fast(*cpu, Conv2d{window, true}, {x, weights, plain({g.out})});
    } else {
      check_fast(*cpu, Conv2d{window}, {x, weights});
    }
    check_fast(*cpu, Conv2dGradInput{window, x.shape}, {y, weights});
    check_fast(*cpu, Conv2dGradWeights{window, bias}, {x, y});
  }
  const Window stem_pool{3, 3, 2, 2, 0, 0}, side_pool{3, 3, 1, 1, 1, 1}, global_pool{8, 8, 1, 1, 0, 0};
  for (const int64_t channels : {64, 192, 288, 768}) {
    const TensorDesc x = plain({2, channels, 35, 35});
    check_fast(*cpu, MaxPool{stem_pool}, {x});
    check_fast(*cpu, AvgPool{side_pool}, {x});
    check_fast(*cpu, AvgPoolGrad{side_pool, true, x.shape}, {x});
  }
  check_fast(*cpu, AvgPool{global_pool}, {plain({2, 2048, 8, 8})});
  check_fast(*cpu, AvgPoolGrad{global_pool, true, {2, 2048, 8, 8}}, {plain({2, 2048, 1, 1})});
  check_fast(*cpu, Linear{}, {plain({2, 2048}), plain({1000, 2048}), plain({1000})});
  check_fast(*cpu, LinearGradInput{}, {plain({2, 1000}), plain({1000, 2048})});
  check_fast(*cpu, LinearGradWeights{}, {plain({2, 2048}), plain({2, 1000})});
}

TEST_CASE("the padding of blocked tensors stays zero on the cpu backend") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  const TensorDesc probe = plain({2, 20, 3, 5});
  const Format blocked = cpu->choose_formats(AvgPool{}, {&probe, 1}, {&probe, 1}).outputs[0];
  REQUIRE(blocked.kind == Format::Kind::blocked);
  const TensorDesc image{probe.shape, DType::f32, blocked}, channels = plain({20}), step{{4}, DType::i32, {}};
  const Window three{3, 3, 1, 1, 1, 1};
  const std::pair<Op, std::vector<TensorDesc>> cases[] = {
      {Relu{}, {image}},
      {ReluGrad{}, {image, image}},
      {Add{}, {image, image, image}},
      {Dropout{0.5, 1}, {image, step}},
      {BatchNorm{1e-3, true}, {image, channels, channels}},
      {BatchNormInference{}, {image, channels, channels, channels, channels}},
      {BatchNormInferenceGrad{1e-3, true}, {image, image, channels, channels, channels, channels}},
      {AvgPool{three}, {image}},
      {MaxPool{three}, {image}},
      {LocalResponseNorm{}, {image}},
      {LocalResponseNormGrad{}, {image, image}},
      {Conv2d{three}, {image, plain({20, 20, 3, 3})}}};
  const auto block = static_cast<size_t>(blocked.id);
  const size_t pixels = 3 * 5, blocks = (20 + block - 1) / block;
  for (const auto& [op, inputs] : cases) {
    INFO(op_name(op));
    const std::vector<float> y = output_over_garbage(*cpu, op, inputs);
    if (y.size() == static_cast<size_t>(image.shape.elements())) continue;  // this processor's kernel does not pad
    REQUIRE(y.size() == 2 * blocks * pixels * block);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t channel = i / (pixels * block) % blocks * block + i % block;
      if (channel >= 20) REQUIRE(y[i] == 0);
    }
  }
}

TEST_CASE("the optimizers of the cpu backend compute what the reference backend computes") {
  constexpr int64_t kCount = 40000;
  ApplyOptimizer op{.segments = {{0, 17000, 0.5}, {17000, 3, 0}, {17003, 22997, 0.25}}};
  op.nesterov = GENERATE(false, true);
  for (const OptimizerSlots& row : optimizers()) {
    op.kind = row.kind;
    INFO(row.name << (op.nesterov ? ", nesterov" : ""));
    std::vector<HostTensor> outputs{random_tensor(kCount, 1, -1, 1)};
    for (size_t slot = 0; slot < row.slots.size(); ++slot) outputs.push_back(random_tensor(kCount, 2 + slot, 0.5, 1));
    check_update(op, {random_tensor(kCount, 5, -4, 4), update_scalars()}, outputs);
  }
}

TEST_CASE("averages, statistics and norms of the cpu backend are the reference backend's") {
  constexpr int64_t kCount = 40000;
  check_update(ApplyAverage{kCount}, {random_tensor(kCount, 1, -1, 1), update_scalars()},
               {random_tensor(kCount, 2, -1, 1)});
  check_update(ApplyStatistics{0.1, {{0, 64, 64, 9}, {128, 144, 16, 1}}},
               {random_tensor(160, 1, 0.5, 1), update_scalars()}, {random_tensor(160, 2, 0.5, 1)});
  check_update(SumOfSquares{kCount}, {random_tensor(kCount, 1, -1, 1)}, {{{1}, DType::f64, {0}}});
}

TEST_CASE("the cpu backend refuses float64 and says what to use") {
  const auto cpu = make_backend("cpu", {});
  const TensorDesc x{{2, 16}, DType::f64, {}};
  try {
    cpu->compile(Relu{}, {&x, 1}, {&x, 1});
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK_THAT(e.what(), ContainsSubstring("f64") && ContainsSubstring("reference backend"));
  }
  CHECK_THROWS_AS(cpu->compile(UpdateOp{DType::f64, SumOfSquares{4}}), Error);
}

// What computes a convolution of `x` to `channels` and its two gradients.
std::vector<std::string> convolved_by(const Backend& backend, const Shape& x, int64_t channels, const Window& window) {
  const Shape weights{channels, x.c(), window.kernel_h, window.kernel_w};
  const Shape y = infer(Conv2d{window}, std::array{plain(x), plain(weights)})[0].shape;
  const auto by = [&](const Op& op, std::vector<TensorDesc> inputs) {
    return compile_chosen(backend, op, std::move(inputs))->implementation();
  };
  return {by(Conv2d{window}, {plain(x), plain(weights)}), by(Conv2dGradInput{window, x}, {plain(y), plain(weights)}),
          by(Conv2dGradWeights{window}, {plain(x), plain(y)})};
}

TEST_CASE("convolutions of stride 1 in the cpu backend are Winograd's, unless that is turned off or slower") {
  const Window window{3, 3, 1, 1, 1, 1};
  const auto cpu = make_backend("cpu", {}), direct = make_backend("cpu", {.winograd = false});
  const Window kernels[] = {window, {1, 3, 1, 1, 0, 1}, {3, 1, 1, 1, 1, 0}, {1, 7, 1, 1, 0, 3}, {7, 1, 1, 1, 3, 0}};
  for (const Window& w : kernels) {
    INFO(w.kernel_h << "x" << w.kernel_w);
    for (const std::string& by : convolved_by(*cpu, {8, 64, 35, 35}, 96, w)) {
      CHECK_THAT(by, ContainsSubstring("winograd lanes:"));
    }
  }
  const auto check_direct = [&](const Backend& backend, const Shape& x, const Window& w) {
    for (const std::string& by : convolved_by(backend, x, 96, w)) CHECK_THAT(by, !ContainsSubstring("wino"));
  };
  check_direct(*direct, {8, 64, 35, 35}, window);
  check_direct(*cpu, {8, 64, 35, 35}, {3, 3, 2, 2, 1, 1});
  check_direct(*cpu, {8, 64, 35, 35}, {5, 5, 1, 1, 2, 2});  // no method
  check_direct(*cpu, {8, 3, 35, 35}, window);               // most of a block of channels would be padding
  check_direct(*cpu, {1, 448, 8, 8}, window);               // weights would be transformed for four tiles
}

TEST_CASE("the cpu backend packs a convolution's weights in one format each time") {
  const auto cpu = make_backend("cpu", {});
  const std::array inputs{plain({1, 32, 5, 5}), plain({32, 32, 3, 3})};
  const Conv2d op{Window{3, 3, 1, 1, 1, 1}};
  const Format packed = cpu->choose_formats(op, inputs, infer(op, inputs)).inputs[1];
  CHECK(packed.kind == Format::Kind::opaque);
  CHECK(cpu->choose_formats(op, inputs, infer(op, inputs)).inputs[1] == packed);
  CHECK(cpu->storage_bytes({inputs[1].shape, DType::f32, packed}) == packed_bytes(inputs[1]));
}
