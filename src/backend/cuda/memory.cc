#include "backend/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "backend/cuda/check.h"
#include "lockstep/backend/out_of_memory.h"
#include "lockstep/base/host_memory.h"

namespace lockstep::cuda {
namespace {

void free_device(void* data, size_t) noexcept { check_noexcept(cudaFree(data), "giving GPU memory back"); }
void free_pinned(void* data, size_t) noexcept { check_noexcept(cudaFreeHost(data), "giving pinned memory back"); }

}  // namespace

Buffer allocate_device(size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // the check of a later launch must not find it again
    size_t free = 0, total = 0;
    const bool known = cudaMemGetInfo(&free, &total) == cudaSuccess;
    throw OutOfMemory("GPU memory", bytes, known ? static_cast<int64_t>(free) : -1);
  }
  check(status, "allocating memory");
  Buffer buffer(data, bytes, free_device);
  check(cudaMemset(data, 0, bytes), "clearing new memory");
  check(cudaDeviceSynchronize(), "clearing new memory");  // our streams do not wait for the default stream
  return buffer;
}

Buffer allocate_pinned_host(size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw OutOfMemory("pinned host memory", bytes, host_memory().available);
  }
  check(status, "allocating pinned host memory");
  std::memset(data, 0, bytes);
  return {data, bytes, free_pinned};
}

}  // namespace lockstep::cuda
