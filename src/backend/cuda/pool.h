// What pool.cu launches.
#pragma once

#include <span>

#include "backend/cuda/rows.h"
#include "lockstep/ops/ops.h"

namespace lockstep::cuda {

struct PoolLaunch {
  Window window;
  Shape image, out;               // [N,C,H,W]
  bool count_include_pad = true;  // average
};
// saved: for each output the position of the maximum in its window, kNoMaximum where the window is all padding
constexpr int kNoMaximum = 255;
void launch_max_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn x, RowsOut y, uint8_t* saved);
// summands: added to dx, dense; dx may be the first one's memory.
constexpr size_t kMaxSummands = 3;
void launch_max_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn dy, const uint8_t* saved,
                          RowsOut dx, std::span<void* const> summands = {});
void launch_avg_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn x, RowsOut y);
void launch_avg_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn dy, RowsOut dx);

}  // namespace lockstep::cuda
