// What the tests of the fake device's own rules work on, and how they see a process crash.
#pragma once

#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>

#include "test/backend/cuda_on_host/emulate.h"
#include "test/catch.h"

namespace lockstep::fake_gpu {

inline void expect(cudaError_t status) {
  INFO(cudaGetErrorString(status));
  REQUIRE(status == cudaSuccess);
}

inline constexpr unsigned kCount = 64;
inline constexpr size_t kBytes = kCount * sizeof(float);

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

// What a process that does this says before it ends, which must be by a signal.
inline std::string crash_of(const std::function<void()>& body) {
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

}  // namespace lockstep::fake_gpu
