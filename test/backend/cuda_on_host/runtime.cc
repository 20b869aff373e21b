// The part of CUDA's runtime that the backend uses, on host memory; everything has finished when it was enqueued.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "test/backend/cuda_on_host/emulate.h"

namespace {
cudaError_t last_error = cudaSuccess;
}

void enqueue_launch(const LaunchShape& shape, cudaStream_t, std::function<void()> kernel) {
  if (!accepts(shape)) {
    last_error = cudaErrorInvalidConfiguration;
  } else {
    emulate(shape, kernel);
  }
}

extern "C" {
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  static char any;
  *stream = reinterpret_cast<cudaStream_t>(&any);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
// Exactly as many bytes as it is asked for, so that the address sanitizer sees what a kernel touches behind them.
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  constexpr size_t kAlignment = 256;
  return ::posix_memalign(memory, kAlignment, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
}
