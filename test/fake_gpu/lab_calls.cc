// What only gpu_lab calls of CUDA and cuBLAS: setting memory, and the versions of the libraries.
#include <cublas_v2.h>

#include <cstring>

#include "test/fake_gpu/memory.h"
#include "test/fake_gpu/runtime.h"

using namespace lockstep::fake_gpu;

extern "C" {

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
