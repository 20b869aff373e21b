// What pool.cu launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "lockstep/ops/ops.h"

namespace lockstep::cuda {

struct PoolLaunch {
  Window window;
  Shape image, out;               // [N,C,H,W]
  bool count_include_pad = true;  // average
};
// saved: for each output the position of the maximum in its window, kNoMaximum where the window is all padding
constexpr int kNoMaximum = 255;
void launch_max_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* x, void* y, uint8_t* saved);
void launch_max_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* dy,
                          const uint8_t* saved, void* dx);
void launch_avg_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* x, void* y);
void launch_avg_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* dy, void* dx);

}  // namespace lockstep::cuda
