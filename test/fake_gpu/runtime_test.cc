// The fake device's own rules: what runs when, who may touch what, and what may be captured.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "test/backend/cuda_on_host/emulate.h"
#include "test/catch.h"
#include "test/fake_gpu/bench.h"
#include "test/fake_gpu/memory.h"
#include "test/fake_gpu/order.h"

using namespace lockstep::fake_gpu;

namespace {

// The status of a call, and what it says.
struct Answer {
  cudaError_t status;
  std::string text;
  explicit Answer(cudaError_t s) : status(s), text(cudaGetErrorString(s)) {}
};

// After a launch that loads the kernel.
void capture(const Bench& b) {
  b.launch();
  expect(cudaStreamBeginCapture(b.compute, cudaStreamCaptureModeThreadLocal));
}
Answer end_capture(const Bench& b) {
  cudaGraph_t graph = nullptr;
  const Answer answer(cudaStreamEndCapture(b.compute, &graph));
  if (graph) (void)cudaGraphDestroy(graph);
  (void)cudaGetLastError();
  return answer;
}

}  // namespace

TEST_CASE("a host that touches device memory crashes with a message") {
  const InOrder in_order("eager");
  const Bench b;
  b.upload(1);
  expect(cudaStreamSynchronize(b.transfer));
  CHECK_THAT(crash_of([&] { b.device[0] = 1; }), ContainsSubstring("fake GPU: the host touched device memory"));
  void* freed = nullptr;
  expect(cudaHostAlloc(&freed, 64, 0));
  expect(cudaFreeHost(freed));
  CHECK_THAT(crash_of([&] { *static_cast<volatile char*>(freed) = 1; }),
             ContainsSubstring("fake GPU: the host touched pinned memory that is no allocation's"));
}

TEST_CASE("a kernel that touches freed memory, or the page beside an allocation, crashes by its name") {
  const InOrder in_order("eager");
  const Bench b;
  float* freed = nullptr;
  expect(cudaMalloc(reinterpret_cast<void**>(&freed), kBytes));
  expect(cudaFree(freed));
  for (float* const memory : {freed, b.device + kCount}) {
    const std::string text = crash_of([&] {
      launch_kernel(
          {"beside", dim3(1), dim3(1)}, b.compute, [](float* data) { *data = 1; }, memory);
    });
    CHECK_THAT(text, ContainsSubstring("fake GPU: beside on stream") && ContainsSubstring("no allocation's"));
  }
}

TEST_CASE("work ordered by an event has the same result in every order") {
  for (const char* const order : {"eager", "lazy", "random:1", "random:2", "random:3"}) {
    const InOrder in_order(order);
    INFO(order);
    const Bench b;
    b.upload(3);
    b.wait_for_upload();
    b.launch();
    CHECK(b.result() == 6);
  }
}

TEST_CASE("a wait that is missing between streams shows: the work runs before what it needs") {
  const auto without_wait = [](const char* order) {
    const InOrder in_order(order);
    const Bench b;
    b.upload(3);
    b.launch();
    return b.result();
  };
  CHECK(without_wait("eager") == 6);
  CHECK(std::isnan(without_wait("lazy")));  // fresh memory
}

TEST_CASE("a barrier that is missing in a kernel shows in the orders of threads") {
  const auto reversed = [](const char* order, bool barrier) {
    const InOrder in_order(order);
    const Bench b;
    launch_kernel(
        {"neighbour", dim3(1), dim3(kCount)}, b.compute,
        [](float* values, bool meets) {
          static float shared[kCount];
          const SharedVariable variable(&shared, sizeof shared);
          shared[threadIdx.x] = static_cast<float>(threadIdx.x);
          if (meets) __syncthreads();
          values[threadIdx.x] = shared[(threadIdx.x + 1) % kCount];
        },
        b.sums, barrier);
    return b.result();
  };
  CHECK(reversed("eager", true) == 1);
  CHECK(reversed("lazy", true) == 1);
  CHECK(std::isnan(reversed("eager", false)));
  CHECK(reversed("lazy", false) == 1);
}

TEST_CASE("threads of a block that part at a barrier are a fault of the device that names the kernel") {
  const InOrder in_order("eager");
  const Bench b;
  launch_kernel({"parting", dim3(1), dim3(8)}, b.compute, [] {
    if (threadIdx.x > 2) __syncthreads();
  });
  const Answer answer(cudaStreamSynchronize(b.compute));
  CHECK(answer.status == cudaErrorLaunchFailure);
  CHECK_THAT(answer.text, ContainsSubstring("parting on stream"));
}

TEST_CASE("a launch that a GPU would refuse is refused") {
  const InOrder in_order("eager");
  const Bench b;
  launch_kernel({"too wide", dim3(1), dim3(1025)}, b.compute, [] {});
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
}

TEST_CASE("pinned memory that is freed under a copy is a fault that names the copy") {
  const InOrder in_order("lazy");
  Bench b;
  b.upload(3);
  const Answer answer(cudaFreeHost(std::exchange(b.host, nullptr)));
  CHECK(answer.status == cudaErrorLaunchFailure);
  CHECK_THAT(answer.text, ContainsSubstring("pinned memory is freed, but a copy of 256 bytes"));
  CHECK(cudaStreamSynchronize(b.compute) == cudaErrorLaunchFailure);  // every call fails from then on
}

TEST_CASE("memory that is not pinned is read at the call, pinned memory when the copy runs") {
  const InOrder in_order("lazy");
  const Bench b;
  std::vector<float> pageable(kCount, 5);
  expect(cudaMemcpyAsync(b.device, pageable.data(), kBytes, cudaMemcpyDefault, b.compute));
  std::fill(pageable.begin(), pageable.end(), 7.0F);
  b.launch();
  CHECK(b.result() == 10);
  std::fill_n(b.host, kCount, 5.0F);
  expect(cudaMemcpyAsync(b.device, b.host, kBytes, cudaMemcpyDefault, b.compute));
  std::fill_n(b.host, kCount, 7.0F);
  b.launch();
  CHECK(b.result() == 14);
}

TEST_CASE("copies and kernels beside an allocation are refused, and its margin is looked at when it is freed") {
  const InOrder in_order("eager");
  Bench b;
  const Answer beside(cudaMemcpyAsync(b.device + 1, b.host, kBytes, cudaMemcpyDefault, b.compute));
  CHECK(beside.status == cudaErrorInvalidValue);
  CHECK_THAT(beside.text, ContainsSubstring("do not lie in one allocation"));
  CHECK(cudaMemcpy(b.device, b.host, kBytes, cudaMemcpyDeviceToHost) == cudaErrorInvalidMemcpyDirection);
  void* odd = nullptr;
  expect(cudaMalloc(&odd, 10));
  launch_kernel(
      {"beyond", dim3(1), dim3(1)}, b.compute, [](char* data) { data[10] = 1; }, static_cast<char*>(odd));
  const Answer freed(cudaFree(odd));
  CHECK_THAT(freed.text, ContainsSubstring("wrote 1 bytes behind an allocation of 10 bytes"));
  CHECK(cudaFree(odd) == cudaErrorInvalidValue);  // twice
  expect(cudaMalloc(&odd, 10));
  launch_kernel(
      {"before", dim3(1), dim3(1)}, b.compute, [](char* data) { data[-1] = 1; }, static_cast<char*>(odd));
  CHECK_THAT(Answer(cudaFree(odd)).text, ContainsSubstring("wrote in front of an allocation of 10 bytes"));
}

TEST_CASE("what is captured runs when it is launched, as often as it is, in its own order") {
  for (const char* const order : {"eager", "lazy", "random:5"}) {
    const InOrder in_order(order);
    INFO(order);
    const Bench b;
    capture(b);
    expect(cudaEventRecord(b.event, b.compute));
    expect(cudaStreamWaitEvent(b.transfer, b.event, 0));  // joins the capture
    expect(cudaMemcpyAsync(b.device, b.host, kBytes, cudaMemcpyDefault, b.transfer));
    b.wait_for_upload();
    b.launch();
    cudaGraph_t graph = nullptr;
    expect(cudaStreamEndCapture(b.compute, &graph));
    cudaGraphExec_t executable = nullptr;
    expect(cudaGraphInstantiate(&executable, graph, 0));
    expect(cudaGraphDestroy(graph));
    for (const float value : {3.0F, 4.0F}) {
      std::fill_n(b.host, kCount, value);
      expect(cudaGraphLaunch(executable, b.compute));
      CHECK(b.result() == 2 * value);
    }
    expect(cudaGraphExecDestroy(executable));
  }
}

TEST_CASE("nodes of a graph that were not put in order run in either order, and others only in their own") {
  // A kernel doubles what a copy on another stream brings; whether it waits for the copy is left to the caller.
  const auto result = [](const std::string& order, bool waits) {
    const InOrder in_order(order);
    const Bench b;
    std::fill_n(b.host, kCount, 3.0F);
    expect(cudaMemset(b.device, 0, kBytes));
    expect(cudaDeviceSynchronize());
    capture(b);
    expect(cudaEventRecord(b.event, b.compute));
    expect(cudaStreamWaitEvent(b.transfer, b.event, 0));
    expect(cudaMemcpyAsync(b.device, b.host, kBytes, cudaMemcpyDefault, b.transfer));
    if (waits) b.wait_for_upload();
    b.launch();
    b.wait_for_upload();  // joins the other stream in any case
    cudaGraph_t graph = nullptr;
    expect(cudaStreamEndCapture(b.compute, &graph));
    cudaGraphExec_t executable = nullptr;
    expect(cudaGraphInstantiate(&executable, graph, 0));
    expect(cudaGraphDestroy(graph));
    expect(cudaGraphLaunch(executable, b.compute));
    const float first = b.result();
    expect(cudaGraphExecDestroy(executable));
    return first;
  };
  std::set<float> unordered;
  for (int seed = 1; seed <= 8; ++seed) {
    const std::string order = "random:" + std::to_string(seed);
    INFO(order);
    unordered.insert(result(order, false));
    CHECK(result(order, true) == 6);
  }
  CHECK(unordered == std::set<float>{0, 6});
}

TEST_CASE("what may not be done in a capture is refused by its name, and ends the capture") {
  struct Case {
    const char* what;
    std::function<cudaError_t(Bench&)> call;
    cudaError_t status;
    const char* text;
  };
  void* memory = nullptr;
  const Case cases[] = {
      {"allocation", [&](Bench&) { return cudaMalloc(&memory, 64); }, cudaErrorStreamCaptureUnsupported,
       "cudaMalloc of 64 bytes while stream"},
      {"pinned allocation", [&](Bench&) { return cudaHostAlloc(&memory, 64, 0); }, cudaErrorStreamCaptureUnsupported,
       "cudaHostAlloc of 64 bytes while stream"},
      {"free", [](Bench& b) { return cudaFree(b.sums); }, cudaErrorStreamCaptureUnsupported, "cudaFree while stream"},
      {"wait for the stream", [](Bench& b) { return cudaStreamSynchronize(b.compute); },
       cudaErrorStreamCaptureUnsupported, "cudaStreamSynchronize of stream"},
      {"wait for the device", [](Bench&) { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported,
       "cudaDeviceSynchronize while stream"},
      {"copy of the default stream", [](Bench& b) { return cudaMemcpy(b.device, b.host, kBytes, cudaMemcpyDefault); },
       cudaErrorStreamCaptureUnsupported, "cudaMemcpy while stream"},
      {"copy of pageable memory",
       [](Bench& b) {
         float value = 0;
         return cudaMemcpyAsync(b.device, &value, sizeof value, cudaMemcpyDefault, b.compute);
       },
       cudaErrorStreamCaptureUnsupported, "a copy of memory that is not pinned while stream"},
      {"first launch of a kernel",
       [](Bench& b) {
         launch_kernel({"unseen", dim3(1), dim3(1)}, b.compute, [] {});
         return cudaGetLastError();
       },
       cudaErrorStreamCaptureUnsupported, "the first launch of unseen, which may load it, while stream"},
      {"event from outside", [](Bench& b) { return cudaStreamWaitEvent(b.compute, b.event, 0); },
       cudaErrorStreamCaptureIsolation, "an event that was recorded outside"},
      {"wait for a captured event",
       [](Bench& b) {
         expect(cudaEventRecord(b.event, b.compute));
         return cudaEventSynchronize(b.event);
       },
       cudaErrorCapturedEvent, "cudaEventSynchronize of an event that was recorded in a capture"},
  };
  for (const Case& c : cases) {
    const InOrder in_order("lazy");
    INFO(c.what);
    Bench b;
    b.upload(1);
    expect(cudaEventRecord(b.event, b.transfer));
    capture(b);
    const Answer answer(c.call(b));
    CHECK(answer.status == c.status);
    CHECK_THAT(answer.text, ContainsSubstring(c.text));
    const Answer end = end_capture(b);
    CHECK(end.status == cudaErrorStreamCaptureInvalidated);
    CHECK_THAT(end.text, ContainsSubstring(c.text));
    b.launch();  // and the stream is an ordinary one again
    expect(cudaStreamSynchronize(b.compute));
  }
}

TEST_CASE("a thread that has chosen no device is refused, since it would work on device 0") {
  expect(cudaSetDevice(0));
  std::thread([] {
    void* memory = nullptr;
    const Answer answer(cudaMalloc(&memory, 64));
    CHECK(answer.status == cudaErrorInvalidDevice);
    CHECK_THAT(answer.text, ContainsSubstring("a thread that has not called cudaSetDevice"));
    expect(cudaSetDevice(0));
    expect(cudaMalloc(&memory, 64));
    expect(cudaFree(memory));
  }).join();
}

TEST_CASE("the time between events is known when both have come, and only if they keep it") {
  const InOrder in_order("lazy");
  const Bench b;
  cudaEvent_t begin = nullptr, end = nullptr;
  for (cudaEvent_t* event : {&begin, &end}) expect(cudaEventCreateWithFlags(event, cudaEventBlockingSync));
  constexpr int kMicroseconds = 2000;  // that a kernel between them takes at least
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorInvalidResourceHandle);  // not recorded
  (void)cudaGetLastError();
  for (int round = 0; round < 2; ++round) {
    expect(cudaEventRecord(begin, b.compute));
    launch_kernel({"sleeping", dim3(1), dim3(1)}, b.compute, [] { ::usleep(kMicroseconds); });
    expect(cudaEventRecord(end, b.compute));
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorNotReady);
    (void)cudaGetLastError();
    expect(cudaEventSynchronize(end));
    expect(cudaEventElapsedTime(&milliseconds, begin, end));
  }
  CHECK(milliseconds >= 1e-3F * kMicroseconds);
  expect(cudaEventRecord(b.event, b.compute));
  expect(cudaEventSynchronize(b.event));
  CHECK(cudaEventElapsedTime(&milliseconds, b.event, end) == cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {begin, end}) expect(cudaEventDestroy(event));
  CHECK(cudaEventQuery(end) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("a stream that is not joined to the one that is captured is named") {
  const InOrder in_order("lazy");
  const Bench b;
  capture(b);
  expect(cudaEventRecord(b.event, b.compute));
  expect(cudaStreamWaitEvent(b.transfer, b.event, 0));
  expect(cudaMemcpyAsync(b.device, b.host, kBytes, cudaMemcpyDefault, b.transfer));
  const Answer answer = end_capture(b);
  CHECK(answer.status == cudaErrorStreamCaptureUnjoined);
  CHECK_THAT(answer.text, ContainsSubstring("was not joined") && ContainsSubstring("a copy of 256 bytes"));
}
