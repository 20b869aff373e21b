// A whole network in every order of threads (single operations and updates run so in all cases, by op_runner.h). And
// the emulation itself: what it finds, what it refuses.
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lockstep/backend/update.h"
#include "test/backend/cuda_on_host/every_order.h"
#include "test/backend/cuda_on_host/planted_faults.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

using namespace lockstep;
using namespace lockstep::test;

namespace {

// What a grid of one block leaves in `values`, a number a thread.
template <class Kernel>
std::vector<float> left_by(unsigned threads, const Kernel& kernel) {
  std::vector<float> values(threads, 0);
  emulate({"a kernel of this test", dim3(1), dim3(threads)}, [&] { kernel(values.data()); });
  REQUIRE(cudaGetLastError() == cudaSuccess);
  return values;
}

}  // namespace

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
  const auto expected = run();
  for (const ThreadOrder order : {ThreadOrder::descending, ThreadOrder::shuffled}) {
    const InThreadOrder in_order(order);
    const auto net = run();
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
  const auto compute = [&](bool barrier) {
    const std::vector<float> left = left_by(64, neighbours(barrier));
    return std::vector<HostTensor>{{{1}, DType::f32, {1}}, {{64}, DType::f32, {left.begin(), left.end()}}};
  };
  CHECK(computed_in_every_order([&] { return compute(true); }).at(1).values[0] == 1);
  CHECK_THROWS_WITH(computed_in_every_order([&] { return compute(false); }),
                    ContainsSubstring("tensor 1 has other bits when threads run in descending order"));
}

TEST_CASE("operations and updates run in every order of threads") {
  const auto cuda = make_backend("cuda", {});
  const auto launches = [] {
    return std::vector{launches_in(ThreadOrder::ascending), launches_in(ThreadOrder::descending),
                       launches_in(ThreadOrder::shuffled)};
  };
  std::vector<int> expected = launches();
  const HostTensor inputs[] = {{{1}, DType::f32, {1}}};
  const Step steps[] = {{Cast{DType::bf16}, {0}}};
  run_program(*cuda, inputs, steps);
  for (int& count : expected) ++count;
  CHECK(launches() == expected);
  HostTensor sums[] = {{{1}, DType::f32, {2}}};
  run_update(*cuda, {DType::f32, AddToSums{1}}, inputs, sums);
  for (int& count : expected) ++count;
  CHECK(launches() == expected);
  CHECK(sums[0].values[0] == 3);
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

TEST_CASE("a block of more threads than the kernel's launch bounds is refused") {
  for (const auto& [launch, bound] :
       {std::pair(&launch_bounded, kBound), std::pair(&launch_template_bounded, 2 * kBound)}) {
    unsigned threads = 0;
    launch(bound + 1, &threads);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CHECK(threads == 0);
    launch(bound, &threads);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(threads == bound);
  }
}

TEST_CASE("a kernel's own shared memory and that of its launch must be within what a block may have") {
  float result = 0;
  CHECK_NOTHROW(launch_sharing(8 << 10, &result));
  CHECK(result == 2);
  CHECK_THROWS_WITH(launch_sharing((8 << 10) + 4, &result), ContainsSubstring("sharing: 49156 bytes of shared memory"));
}

#ifdef __SANITIZE_ADDRESS__
TEST_CASE("the address sanitizer sees the first byte behind a tensor") {
  char* memory = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&memory), 10) == cudaSuccess);
  CHECK(reinterpret_cast<uintptr_t>(memory) % 256 == 0);
  CHECK(__asan_address_is_poisoned(memory + 9) == 0);
  CHECK(__asan_address_is_poisoned(memory + 10) != 0);
  CHECK(cudaFree(memory) == cudaSuccess);
}
#endif
