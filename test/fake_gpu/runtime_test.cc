// The fake device's own rules: what runs when, who may touch what, and what may be captured.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "test/backend/cuda_on_host/emulate.h"
#include "test/catch.h"
#include "test/fake_gpu/memory.h"
#include "test/fake_gpu/order.h"

using namespace lockstep::fake_gpu;

namespace {

void expect(cudaError_t status) {
  INFO(cudaGetErrorString(status));
  REQUIRE(status == cudaSuccess);
}

constexpr unsigned kCount = 64;
constexpr size_t kBytes = kCount * sizeof(float);

// Two streams, an event, numbers on the device and in pinned memory.
struct Bench {
  cudaStream_t compute = nullptr, transfer = nullptr;
  cudaEvent_t event = nullptr;
  float *device = nullptr, *sums = nullptr, *host = nullptr;

  Bench() {
    for (cudaStream_t* stream : {&compute, &transfer}) expect(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    expect(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (float** memory : {&device, &sums}) expect(cudaMalloc(reinterpret_cast<void**>(memory), kBytes));
    expect(cudaHostAlloc(reinterpret_cast<void**>(&host), kBytes, cudaHostAllocPortable));
  }
  ~Bench() {
    (void)cudaDeviceSynchronize();
    for (float* memory : {device, sums}) (void)cudaFree(memory);
    if (host) (void)cudaFreeHost(host);
    (void)cudaEventDestroy(event);
    for (cudaStream_t stream : {compute, transfer}) (void)cudaStreamDestroy(stream);
  }

  void upload(float value) const {
    std::fill_n(host, kCount, value);
    expect(cudaMemcpyAsync(device, host, kBytes, cudaMemcpyDefault, transfer));
  }
  void wait_for_upload() const {
    expect(cudaEventRecord(event, transfer));
    expect(cudaStreamWaitEvent(compute, event, 0));
  }
  // sums = twice the numbers of the device
  void launch() const {
    launch_kernel(
        {"twice", dim3(1), dim3(kCount)}, compute,
        [](const float* from, float* to) { to[threadIdx.x] = 2 * from[threadIdx.x]; }, device, sums);
    expect(cudaGetLastError());
  }
  float result() const {
    float first = 0;
    expect(cudaMemcpyAsync(&first, sums, sizeof first, cudaMemcpyDefault, compute));
    expect(cudaStreamSynchronize(compute));
    return first;
  }
};

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

// Two ranks of one NCCL communicator, both in this process.
struct Connection {
  std::array<ncclComm_t, 2> ranks{};

  Connection() {
    ncclUniqueId id{};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    for (int rank : {0, 1}) REQUIRE(ncclCommInitRankConfig(&ranks[rank], 2, id, rank, &config) == ncclInProgress);
    for (int rank : {0, 1}) REQUIRE(last_state(rank) == ncclSuccess);
  }

  ncclResult_t state(int rank) const {
    ncclResult_t state = ncclSystemError;
    REQUIRE(ncclCommGetAsyncError(ranks[rank], &state) == ncclSuccess);
    return state;
  }
  // Its state when it is no longer in progress.
  ncclResult_t last_state(int rank) const {
    while (state(rank) == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return state(rank);
  }
  ncclResult_t all_reduce(int rank, float* values, cudaStream_t stream) const {
    REQUIRE(ncclAllReduce(values, values, kCount, ncclFloat32, ncclSum, ranks[rank], stream) == ncclInProgress);
    return last_state(rank);
  }
};

// What a process that does this says before it ends, which must be by a signal.
std::string crash_of(const std::function<void()>& body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char part[256];
  for (ssize_t count = 0; (count = ::read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(count));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  return text;
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

TEST_CASE("a collective before NCCL's last call is complete is refused") {
  const Bench b;
  ncclUniqueId id{};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t half_connected = nullptr;  // the other rank never comes
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(ncclCommInitRankConfig(&half_connected, 2, id, 0, &config) == ncclInProgress);
  CHECK(ncclAllReduce(b.sums, b.sums, kCount, ncclFloat32, ncclSum, half_connected, b.compute) == ncclInvalidArgument);
  CHECK(ncclCommAbort(half_connected) == ncclSuccess);
}

TEST_CASE("a connection of NCCL is destroyed only after all its ranks have finalized it") {
  const Connection connection;
  CHECK(ncclCommDestroy(connection.ranks[0]) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(connection.ranks[0]) == ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(connection.state(0) == ncclInProgress);
  CHECK(ncclCommDestroy(connection.ranks[0]) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(connection.ranks[1]) == ncclInProgress);
  for (int rank : {0, 1}) CHECK(connection.last_state(rank) == ncclSuccess);
  for (const ncclComm_t rank : connection.ranks) CHECK(ncclCommDestroy(rank) == ncclSuccess);
}

TEST_CASE("a collective that is captured on one rank and not on the other is refused") {
  const InOrder in_order("eager");
  const Bench b;
  const Connection connection;
  expect(cudaStreamBeginCapture(b.compute, cudaStreamCaptureModeRelaxed));
  CHECK(connection.all_reduce(0, b.sums, b.compute) == ncclSuccess);
  cudaGraph_t graph = nullptr;
  expect(cudaStreamEndCapture(b.compute, &graph));
  cudaGraphExec_t executable = nullptr;
  expect(cudaGraphInstantiate(&executable, graph, 0));
  expect(cudaGraphDestroy(graph));
  expect(cudaGraphLaunch(executable, b.compute));
  (void)connection.all_reduce(1, b.device, b.transfer);
  expect(cudaDeviceSynchronize());
  for (int rank : {0, 1}) {
    CHECK(connection.last_state(rank) == ncclInternalError);
    CHECK_THAT(ncclGetLastError(connection.ranks[rank]), ContainsSubstring("in a captured collective of 64 elements"));
  }
  expect(cudaGraphExecDestroy(executable));
  for (const ncclComm_t rank : connection.ranks) CHECK(ncclCommAbort(rank) == ncclSuccess);
}

TEST_CASE("ranks in different collectives are an error that says how they differ") {
  const InOrder in_order("eager");
  const Bench b;
  const Connection connection;
  REQUIRE(ncclAllReduce(b.device, b.device, kCount / 2, ncclFloat32, ncclSum, connection.ranks[1], b.transfer) ==
          ncclInProgress);
  (void)connection.all_reduce(0, b.sums, b.compute);
  expect(cudaDeviceSynchronize());
  for (int rank : {0, 1}) CHECK(connection.last_state(rank) == ncclInternalError);
  CHECK_THAT(ncclGetLastError(connection.ranks[0]),
             ContainsSubstring("rank 0 is in a collective of 64 elements and rank 1 in a collective of 32 elements"));
  for (const ncclComm_t rank : connection.ranks) CHECK(ncclCommAbort(rank) == ncclSuccess);
}

TEST_CASE("an abort of a connection of NCCL waits until no graph has a collective of it") {
  const InOrder in_order("eager");
  const Bench b;
  const Connection connection;
  expect(cudaStreamBeginCapture(b.compute, cudaStreamCaptureModeRelaxed));
  CHECK(connection.all_reduce(0, b.sums, b.compute) == ncclSuccess);
  cudaGraph_t graph = nullptr;
  expect(cudaStreamEndCapture(b.compute, &graph));
  cudaGraphExec_t executable = nullptr;
  expect(cudaGraphInstantiate(&executable, graph, 0));
  expect(cudaGraphDestroy(graph));
  std::atomic<bool> aborted{false};
  std::thread aborting([&] {
    (void)ncclCommAbort(connection.ranks[0]);
    aborted = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK_FALSE(aborted);
  expect(cudaGraphExecDestroy(executable));
  aborting.join();
  CHECK(aborted);
  CHECK(ncclCommAbort(connection.ranks[1]) == ncclSuccess);
}

TEST_CASE("a rank that leaves another in a collective, and a process that ends in an abort, crash") {
  const InOrder in_order("eager");
  const Bench b;
  CHECK_THAT(crash_of([&] {
               const Connection connection;
               (void)connection.all_reduce(1, b.sums, b.compute);
               std::this_thread::sleep_for(std::chrono::seconds(3));  // far more than a thread takes to start
               (void)ncclCommAbort(connection.ranks[0]);
             }),
             ContainsSubstring("fake GPU: NCCL: rank 0 left while rank 1 is in collective 1"));
  CHECK_THAT(crash_of([&] {
               const Connection connection;
               ::setenv("FAKE_NCCL_ABORT_HANGS", "0", 1);
               std::thread([&] { (void)ncclCommAbort(connection.ranks[0]); }).detach();
               std::this_thread::sleep_for(std::chrono::seconds(3));  // far more than a thread takes to start
               std::exit(0);
             }),
             ContainsSubstring("fake GPU: NCCL: the process ends while a thread is in ncclCommAbort"));
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
