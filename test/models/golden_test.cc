// Whole models against values that PyTorch computed (test/golden/README.md): outputs, gradients, and the weights and
// statistics after one step.
#include <cmath>

#include "lockstep/backend/cpu_library.h"
#include "lockstep/base/cpu_cores.h"
#include "lockstep/exchange/onnx_import.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/models/golden.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::unique_ptr<Backend> backend_on_all_cores(std::string_view name) {
  return make_backend(name, {.threads = usable_cores(cpu_cores())});
}

// In float64 nothing but the order of sums differs.
void check_exactly(const std::string& file) {
  const GoldenCase golden = read_golden(file);
  const auto backend = backend_on_all_cores("reference");
  for (const auto& [quantity, error] : golden_errors(golden, compute_golden(golden, *backend, DType::f64))) {
    INFO(quantity);
    CHECK(error < 1e-8);
  }
}

// In float32 PyTorch's own error is the yardstick, in the worst of its variants: batch norm over few samples magnifies
// rounding.
void check_in_float32(const std::string& file, std::string_view name = "cpu") {
  const GoldenCase golden = read_golden(file);
  std::map<std::string, double> allowed;
  for (const auto& [variant, values] : golden.peers) {
    for (const auto& [quantity, error] : golden_errors(golden, values)) {
      allowed[quantity] = std::max(allowed[quantity], 3 * error + 1e-6);
    }
  }
  const auto backend = backend_on_all_cores(name);
  for (const auto& [quantity, error] : golden_errors(golden, compute_golden(golden, *backend, DType::f32))) {
    INFO(quantity);
    CHECK(error <= allowed.at(quantity));
  }
}

// A network and its weights in a file that PyTorch wrote; it is trained without dropout here.
GoldenCase read_onnx_golden(const std::string& network, const std::string& variant) {
  GoldenCase golden = read_golden("onnx/" + network + ".h5");
  OnnxModel model = read_onnx_model(golden_path("onnx/" + network + variant + ".onnx"));
  golden.options.definition = std::move(model.definition);
  golden.options.definition_path = network;
  golden.options.dropout = 0;
  for (const char* rate : {"rate = 0.5", "rate = 0.25"}) {
    const size_t at = golden.options.definition.find(rate);
    if (at != std::string::npos) golden.options.definition.replace(at, std::string(rate).size(), "rate = 0");
  }
  for (NamedTensor& tensor : model.weights) golden.weights[tensor.name] = std::move(tensor.values);
  return golden;
}

void check_onnx(const std::string& network) {
  const auto reference = backend_on_all_cores("reference"), cpu = backend_on_all_cores("cpu");
  const GoldenCase golden = read_onnx_golden(network, "");
  for (const auto& [quantity, error] : golden_errors(golden, compute_golden(golden, *reference, DType::f64))) {
    INFO(quantity);
    CHECK(error < 1e-8);
  }
  for (const char* variant : {"", "_folded", "_dynamo"}) {
    INFO(variant);
    const GoldenCase file = read_onnx_golden(network, variant);
    CHECK(relative_error(evaluation_logits(file, *cpu, DType::f32), golden.exact.at("eval/logits")) < 1e-5);
  }
}

// A precision below float32. The bounds are what rounding to so many bits is expected to do, layer upon layer, to the
// loss and to the typical gradient. fp16 has an eighth of the rounding of bf16, but its fused convolutions also round
// slope and offset of the norm before them, once for all values of a channel.
struct LowPrecision {
  const char* name;
  bool tf32;
  DType compute;
  double loss, gradient;  // largest relative errors
};
constexpr LowPrecision kBfloat16{"bf16", false, DType::bf16, 0.05, 0.3};
constexpr LowPrecision kGpuPrecisions[] = {
    {"tf32", true, DType::f32, 0.01, 0.05}, kBfloat16, {"fp16", false, DType::f16, 0.02, 0.05}};

// `loss_factor`: how much more the loss may be off than in the table.
void check_low(const GoldenCase& golden, const Backend& backend, const LowPrecision& precision, double loss_factor) {
  INFO(precision.name);
  const auto errors = golden_errors(golden, compute_golden(golden, backend, DType::f32, precision.compute));
  CHECK(errors.at("train/loss") < loss_factor * precision.loss);
  CHECK(errors.at("train/grad_norm.median") < precision.gradient);
}

void check_in_bfloat16(const std::string& file, double loss_factor = 1) {
  if (!cpu_computes_bf16()) {
    WARN("skipped, this processor has no instructions for bfloat16");
    return;
  }
  check_low(read_golden(file), *backend_on_all_cores("cpu"), kBfloat16, loss_factor);
}

// On a GPU, where there is one. Float32 is held to what the CPU is.
void check_on_gpu(const std::string& file, double loss_factor = 1) {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  check_in_float32(file, "cuda");
  const GoldenCase golden = read_golden(file);
  for (const LowPrecision& precision : kGpuPrecisions) {
    check_low(golden, *make_backend("cuda", {.tf32 = precision.tf32}), precision, loss_factor);
  }
}

}  // namespace

TEST_CASE("cifar10_cnn on a GPU is as close as its precision allows", "[golden]") {
  check_on_gpu("cifar10_cnn_24_b16.h5");
}

TEST_CASE("inception_v3 on a GPU is as close as its precision allows", "[golden]") {
  check_on_gpu("inception_v3_299_b8.h5");
}

TEST_CASE("inception_v3 of 107 pixels on a GPU is as close as its precision allows", "[golden]") {
  check_on_gpu("inception_v3_107_b8.h5");
}

// Its last stage normalizes 32 values a channel, which magnifies rounding.
TEST_CASE("resnet50 on a GPU is as close as its precision allows", "[golden]") { check_on_gpu("resnet50_64_b8.h5", 2); }

TEST_CASE("cifar10_cnn in bfloat16 on the CPU is as close as its precision allows", "[golden]") {
  check_in_bfloat16("cifar10_cnn_24_b16.h5");
}

TEST_CASE("inception_v3 of 107 pixels in bfloat16 on the CPU is as close as its precision allows", "[golden]") {
  check_in_bfloat16("inception_v3_107_b8.h5");
}

TEST_CASE("resnet50 in bfloat16 on the CPU is as close as its precision allows", "[golden]") {
  check_in_bfloat16("resnet50_64_b8.h5", 2);
}

TEST_CASE("a convolutional network with branches from ONNX computes what PyTorch does", "[golden]") {
  check_onnx("branches");
}

TEST_CASE("groups, ReLU6 and linear layers without a bias from ONNX compute what PyTorch does", "[golden]") {
  check_onnx("groups");
}

TEST_CASE("resnet18 from ONNX computes what PyTorch does", "[golden]") { check_onnx("resnet18"); }

TEST_CASE("squeezenet1_1 from ONNX computes what PyTorch does", "[golden]") { check_onnx("squeezenet1_1"); }

TEST_CASE("cifar10_cnn computes the reference values", "[golden]") { check_exactly("cifar10_cnn_24_b16.h5"); }

TEST_CASE("cifar10_cnn in float32 is as close as its peers", "[golden]") { check_in_float32("cifar10_cnn_24_b16.h5"); }

TEST_CASE("inception_v3 on 107 pixels computes the reference values", "[golden]") {
  check_exactly("inception_v3_107_b8.h5");
}

TEST_CASE("inception_v3 on 107 pixels in float32 is as close as its peers", "[golden]") {
  check_in_float32("inception_v3_107_b8.h5");
}

TEST_CASE("resnet18 on 64 pixels computes the reference values", "[golden]") { check_exactly("resnet18_64_b8.h5"); }

TEST_CASE("resnet18 on 64 pixels in float32 is as close as its peers", "[golden]") {
  check_in_float32("resnet18_64_b8.h5");
}

TEST_CASE("resnet50 on 64 pixels computes the reference values", "[golden]") { check_exactly("resnet50_64_b8.h5"); }

TEST_CASE("resnet50 on 64 pixels in float32 is as close as its peers", "[golden]") {
  check_in_float32("resnet50_64_b8.h5");
}

TEST_CASE("inception_v3 on 299 pixels in float32 is as close as its peers", "[golden]") {
  check_in_float32("inception_v3_299_b8.h5");
}

TEST_CASE("inception_v3 on 299 pixels computes the reference values", "[slow]") {
  check_exactly("inception_v3_299_b8.h5");
}
