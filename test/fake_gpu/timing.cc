// Events that keep the time, and what only gpu_lab calls.
#include <cublas_v2.h>

#include <cstring>

#include "test/fake_gpu/memory.h"
#include "test/fake_gpu/runtime.h"

using namespace lockstep::fake_gpu;

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(new Event{.reached = std::make_shared<double>(-1)});
  return cudaSuccess;
}
// By the host's clock that is how long the fake took (see Device::seconds).
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  return call([&](Lock&) {
    double seconds[2];
    for (const auto& [event, at] : {std::pair(start, 0), std::pair(stop, 1)}) {
      const auto& reached = reinterpret_cast<Event*>(event)->reached;
      if (!reached) throw Refused(cudaErrorInvalidResourceHandle, "an event without timing");
      if (*reached < 0) throw Refused(cudaErrorNotReady, "an event that no stream has come by");
      seconds[at] = *reached;
    }
    *milliseconds = static_cast<float>((seconds[1] - seconds[0]) * 1e3);
  });
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return call([&](Lock&) {
    if (const std::string trouble = trouble_with(memory, bytes); !trouble.empty()) {
      throw Refused(cudaErrorInvalidValue, "cudaMemsetAsync: " + trouble);
    }
    submit(stream_of(stream), {.what = "cudaMemsetAsync", .run = [=] { std::memset(memory, value, bytes); }});
  });
}

cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cublasStatus_t cublasGetProperty(libraryPropertyType, int* value) {
  *value = 0;
  return CUBLAS_STATUS_SUCCESS;
}
}
