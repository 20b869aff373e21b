// Every model compiles for GPUs that are not here: every operation has a kernel, and cuDNN a plan for every
// convolution, forward and backward, in every precision. Nothing runs.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "backend/cuda/cuda_backend.h"
#include "lockstep/graph/executable.h"
#include "lockstep/models/models.h"
#include "test/catch.h"
#include "test/models/precisions.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {
int capability_major = 0;  // of the device that is planned for
}

// cuDNN's frontend asks the runtime for the current device, whatever device it plans for.
extern "C" {
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? capability_major : 0;
  return cudaSuccess;
}
}

namespace {

std::string device_description(const std::string& name) {
  std::ifstream file(std::string(LOCKSTEP_DEVICE_DIR) + "/" + name + ".json");
  REQUIRE(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
}

ModelOptions model_options(std::string_view model, bool training) {
  const bool small = model == "cifar10_cnn";
  return {.batch_size = 32,
          .image_size = small ? 24 : 299,
          .classes = small ? 10 : 1000,
          .training = training,
          .aux_weight = model == "inception_v3" ? 0.4 : 0,
          .dropout = 0.2,
          .label_smoothing = 0.1,
          .hidden = {64, 64},
          .vocabulary = 124,
          .max_ids = 16};
}

// What the model's kernels are made of; throws what a layer is refused for.
std::multiset<std::string> compile_for(const Backend& backend, const Model& model, const Precision& precision,
                                       bool training) {
  const Executable e = Executable::compile(build_model(model.name, model_options(model.name, training)), backend,
                                           {.training = training, .compute = precision.compute});
  std::multiset<std::string> kinds;
  for (size_t p = 0; p < e.schedule().order.size(); ++p) {
    const std::string implementation = e.kernel(p).implementation();
    if (precision.compute != DType::f32 && implementation.starts_with("cudnn:")) {
      INFO(e.graph().node(e.schedule().order[p]).name << ": " << implementation);
      CHECK((implementation.ends_with(", tensor cores") || implementation.ends_with(", fused")));
      CHECK(e.kernel(p).workspace_bytes() < size_t{132} << 20);
    }
    kinds.insert(implementation.substr(0, implementation.find(':')));
  }
  fmt::print("{}, {}, {}: {} kernels, {} of them cuDNN's; {:.0f} MB of activations for 32 images\n", model.name,
             precision.name, training ? "training" : "evaluation", kinds.size(), kinds.count("cudnn"),
             static_cast<double>(e.plan().activation_bytes) * 1e-6);
  return kinds;
}

void check_device(const std::string& device, int major) {
  capability_major = major;
  const std::string description = device_description(device);
  for (const Precision& precision : kPrecisions) {
    const auto backend = cuda::make_backend_for_described_device(description, {.tf32 = precision.tf32});
    for (const Model& model : models()) {
      INFO(device << " " << precision.name << " " << model.name);
      const auto training = compile_for(*backend, model, precision, true);
      const auto evaluation = compile_for(*backend, model, precision, false);
      // A forward plan each, and backward one by the weights and, but for the first layer, one by the input.
      CHECK(training.count("cudnn") + 1 >= 3 * evaluation.count("cudnn"));
      CHECK((evaluation.count("cudnn") > 0) == (model.name != "wide_mlp"));
    }
  }
}

}  // namespace

TEST_CASE("every layer of every model has its kernels on an H100, in every precision") { check_device("h100", 9); }

TEST_CASE("every layer of every model has its kernels on an A100, in every precision") { check_device("a100", 8); }

TEST_CASE("convolutions in groups, ReLU6 and a linear layer without a bias have their kernels, in every precision") {
  const auto [device, major] = GENERATE(std::pair("h100", 9), std::pair("a100", 8));
  capability_major = major;
  for (const Precision& precision : kPrecisions) {
    INFO(device << " " << precision.name);
    const auto backend = cuda::make_backend_for_described_device(device_description(device), {.tf32 = precision.tf32});
    ModelBuilder b({.batch_size = 32, .image_size = 56, .classes = 10});
    const Window three{3, 3, 1, 1, 1, 1}, strided{3, 3, 2, 2, 1, 1};
    ValueId x = b.conv(b.images(), "stem", {.channels = 64, .window = three});
    x = b.conv(x, "resnext", {.channels = 128, .window = three, .groups = 32});
    x = b.relu(b.batch_norm(x, "norm"), "six", true);
    x = b.conv(x, "depthwise", {.channels = 128, .window = strided, .groups = 128});
    x = b.flatten(b.global_avg_pool(x, "pool"), "flatten");
    b.loss(b.linear(x, "fc", {.outputs = 10, .bias = {}}), "loss", 1);
    const Executable e = Executable::compile(std::move(b).finish(), *backend, {.compute = precision.compute});
    int64_t planned = 0;
    for (size_t p = 0; p < e.schedule().order.size(); ++p)
      planned += e.kernel(p).implementation().starts_with("cudnn:");
    CHECK(planned == 8);  // forward and by the weights each, and by the input but for the first
  }
}

TEST_CASE("batch norm over all ranks has its kernels, in every precision") {
  capability_major = 9;
  for (const Precision& precision : kPrecisions) {
    INFO(precision.name);
    const auto backend = cuda::make_backend_for_described_device(device_description("h100"), {.tf32 = precision.tf32});
    const Executable e = Executable::compile(build_model("resnet50", model_options("resnet50", true)), *backend,
                                             {.synchronized_ranks = 2, .compute = precision.compute});
    const auto count = [&]<class Wanted>(Wanted) {
      return std::ranges::count_if(e.graph().nodes,
                                   [](const Node& node) { return std::holds_alternative<Wanted>(node.op); });
    };
    CHECK(count(BatchNorm{}) == 0);
    CHECK(count(SyncBatchNorm{}) == 53);
    CHECK(count(SumOverRanks{}) == 2 * 53);
  }
}

TEST_CASE("what has no kernel is refused with its name and the reason") {
  const auto backend = cuda::make_backend_for_described_device(device_description("h100"), {});
  ModelBuilder b({.batch_size = 2, .image_size = 8, .classes = 4, .dtype = DType::f64});
  b.loss(b.linear(b.flatten(b.conv(b.images(), "conv", {.channels = 4}), "flatten"), "fc", {.outputs = 4}), "loss", 1);
  Graph graph = std::move(b).finish();
  CHECK_THROWS_WITH(Executable::compile(std::move(graph), *backend, {}),
                    ContainsSubstring("images.reordered: the CUDA backend has no Reorder of f64"));
}

TEST_CASE("a description that is no device is refused") {
  CHECK_THROWS_WITH(cuda::make_backend_for_described_device("{}", {}),
                    ContainsSubstring("cuDNN does not know such a device"));
}
