// Races in the kernels, as far as a host can show them: whatever order a block's threads run in between barriers, and a
// grid's blocks, the results have the same bits. And the emulation itself: what it finds, what it refuses.
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "test/backend/cuda_on_host/emulate.h"
#include "test/backend/op_cases.h"
#include "test/backend/pictures.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// Runs body() in this order, and the rest of the program in ascending order.
template <class Body>
auto in_order(ThreadOrder order, const Body& body) {
  set_thread_order(order);
  try {
    auto result = body();
    set_thread_order(ThreadOrder::ascending);
    return result;
  } catch (...) {
    set_thread_order(ThreadOrder::ascending);
    throw;
  }
}

constexpr ThreadOrder kOtherOrders[] = {ThreadOrder::descending, ThreadOrder::shuffled};

// The case in this element type: its images, weights and biases are cast first.
std::vector<Step> lowered(const OpCase& op_case, DType to) {
  const int count = static_cast<int>(op_case.inputs.size());
  std::vector<Step> steps;
  std::vector<int> positions(op_case.inputs.size());
  int casts = 0;
  for (int i = 0; i < count; ++i) {
    const Fill fill = op_case.inputs[static_cast<size_t>(i)].fill;
    const bool low = to != DType::f32 && (fill == Fill::activation || fill == Fill::weight);
    positions[static_cast<size_t>(i)] = low ? count + casts++ : i;
    if (low) steps.push_back({Cast{to}, {i}});
  }
  for (Step step : op_case.steps) {
    for (int& input : step.inputs) input = input < count ? positions[static_cast<size_t>(input)] : input + casts;
    steps.push_back(std::move(step));
  }
  return steps;
}

bool is_float32_only(const OpCase& op_case) {
  return std::ranges::any_of(op_case.steps, [](const Step& step) {
    return std::holds_alternative<SoftmaxCrossEntropy>(step.op) || std::holds_alternative<BatchMoments>(step.op) ||
           std::holds_alternative<EmbeddingBag>(step.op);
  });
}

// Equal bits, those of numbers that are none too.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

// What a grid of one block leaves in `values`, a number a thread.
template <class Kernel>
std::vector<float> left_by(unsigned threads, const Kernel& kernel) {
  std::vector<float> values(threads, 0);
  emulate({"a kernel of this test", dim3(1), dim3(threads)}, [&] { kernel(values.data()); });
  REQUIRE(cudaGetLastError() == cudaSuccess);
  return values;
}

}  // namespace

TEST_CASE("operations have the same bits in whatever order blocks and threads run") {
  for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
    const auto cuda = make_backend("cuda", {});
    for (const OpCase& op_case : op_cases()) {
      const bool by_library = std::holds_alternative<Conv2d>(op_case.steps[0].op);
      if (by_library || (compute != DType::f32 && is_float32_only(op_case))) continue;
      INFO(op_case.name << " in " << dtype_name(compute));
      const auto run = [&] { return run_program(*cuda, case_inputs(op_case, DType::f32), lowered(op_case, compute)); };
      const ProgramResult expected = in_order(ThreadOrder::ascending, run);
      for (const ThreadOrder order : kOtherOrders) {
        const ProgramResult result = in_order(order, run);
        for (size_t i = 0; i < expected.values.size(); ++i) {
          INFO("value " << i);
          CHECK(same_bits(result.values[i].values, expected.values[i].values));
        }
      }
    }
  }
}

TEST_CASE("images made of bytes have the same bits in whatever order blocks and threads run") {
  const auto cuda = make_backend("cuda", {});
  const Pictures pictures = random_pictures();
  for (const DType to : {DType::f32, DType::bf16}) {
    const auto run = [&] { return pictures.prepare(*cuda, true, to); };
    const std::vector<double> expected = in_order(ThreadOrder::ascending, run);
    for (const ThreadOrder order : kOtherOrders) CHECK(same_bits(in_order(order, run), expected));
  }
}

TEST_CASE("a network forward and backward has the same bits in whatever order blocks and threads run") {
  const auto cuda = make_backend("cuda", {});
  const bool strided = GENERATE(false, true);
  CompileOptions options;
  if (strided) options = {.compute = DType::f16, .pixels = PreparePixels{.changes = true, .distort = true}};
  const auto run = [&] {
    auto net = std::make_unique<Net>(*cuda, (strided ? strided_net : block_net)(float_options()), options);
    net->fill_at_random(1);
    net->forward();
    net->backward();
    return net;
  };
  const auto expected = in_order(ThreadOrder::ascending, run);
  for (const ThreadOrder order : kOtherOrders) {
    const auto net = in_order(order, run);
    CHECK(net->loss() == expected->loss());
    CHECK(worst_gradient_error(*net, *expected) == 0);
  }
}

TEST_CASE("a barrier that is missing makes the order of threads show") {
  static float shared[64];
  const auto neighbours = [](bool barrier) {
    return [barrier](float* values) {
      const SharedVariable variable(&shared, sizeof shared);
      shared[threadIdx.x] = static_cast<float>(threadIdx.x);
      if (barrier) __syncthreads();
      values[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
    };
  };
  for (const bool barrier : {true, false}) {
    const auto up = in_order(ThreadOrder::ascending, [&] { return left_by(64, neighbours(barrier)); });
    const auto down = in_order(ThreadOrder::descending, [&] { return left_by(64, neighbours(barrier)); });
    CHECK((std::memcmp(up.data(), down.data(), up.size() * sizeof(float)) == 0) == barrier);
  }
}

TEST_CASE("shared memory holds no numbers when a block begins") {
  static float shared[8];
  std::vector<float> found(3, 0);
  emulate({"reader", dim3(3), dim3(1)}, [&] {
    const SharedVariable variable(&shared, sizeof shared);
    found[blockIdx.x] = shared[5];
    shared[5] = 1;
  });
  for (const float value : found) CHECK(std::isnan(value));
}

TEST_CASE("threads of a block that part at a barrier are an error") {
  const auto ends_early = [](float*) {
    if (threadIdx.x > 2) return;
    __syncthreads();
  };
  CHECK_THROWS_AS(left_by(8, ends_early), std::logic_error);
  const auto two_barriers = [](float* values) {
    if (threadIdx.x > 2) {
      __syncthreads();
      values[threadIdx.x] = 1;
    } else {
      __syncthreads();
    }
  };
  CHECK_THROWS_AS(left_by(8, two_barriers), std::logic_error);
  CHECK_NOTHROW(left_by(8, [](float*) { __syncthreads(); }));
}

TEST_CASE("launches beyond what a GPU takes are refused as a GPU refuses them") {
  const auto status_of = [](const LaunchShape& shape) {
    bool ran = false;
    enqueue_launch(shape, nullptr, [&] { ran = true; });
    const cudaError_t status = cudaGetLastError();
    CHECK(ran == (status == cudaSuccess));
    return status;
  };
  CHECK(status_of({"largest block", dim3(1), dim3(1024)}) == cudaSuccess);
  CHECK(status_of({"most memory", dim3(1), dim3(1), 49152}) == cudaSuccess);
  for (const LaunchShape& shape :
       {LaunchShape{"threads", dim3(1), dim3(1025)}, LaunchShape{"threads", dim3(1), dim3(32, 33)},
        LaunchShape{"threads in z", dim3(1), dim3(1, 1, 65)}, LaunchShape{"no threads", dim3(1), dim3(0)},
        LaunchShape{"no blocks", dim3(0), dim3(1)}, LaunchShape{"y", dim3(1, 65536), dim3(1)},
        LaunchShape{"z", dim3(1, 1, 65536), dim3(1)}, LaunchShape{"memory", dim3(1), dim3(1), 49153}}) {
    INFO(shape.kernel);
    CHECK(status_of(shape) == cudaErrorInvalidConfiguration);
  }
}
