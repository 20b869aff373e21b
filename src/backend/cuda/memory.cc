#include "backend/cuda/memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>

#include "backend/cuda/check.h"

namespace lockstep::cuda {
namespace {

void free_device(void* data, size_t) noexcept { check_noexcept(cudaFree(data), "giving GPU memory back"); }
void free_pinned(void* data, size_t) noexcept { check_noexcept(cudaFreeHost(data), "giving pinned memory back"); }

}  // namespace

Buffer allocate_device(size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), fmt::format("cannot allocate {:.1f} MB", static_cast<double>(bytes) * 1e-6));
  Buffer buffer(data, bytes, free_device);
  check(cudaMemset(data, 0, bytes), "clearing new memory");
  check(cudaDeviceSynchronize(), "clearing new memory");  // no stream of ours waits for the default one
  return buffer;
}

Buffer allocate_pinned_host(size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable),
        fmt::format("cannot allocate {:.1f} MB of pinned host memory", static_cast<double>(bytes) * 1e-6));
  std::memset(data, 0, bytes);
  return {data, bytes, free_pinned};
}

}  // namespace lockstep::cuda
