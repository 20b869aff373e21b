// CUDA kernels run on the host, one block after the other; the threads of a block take turns that end at barriers, so
// each sees what the others wrote before the last one. What the translated kernels include (translate_kernels.py).
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <functional>

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// Calls `kernel` for every thread of the grid.
void emulate(dim3 grid, dim3 block, const std::function<void()>& kernel);
void __syncthreads();

// What CUDA declares globally.
using std::isfinite;
using std::isnan;
using std::max;
using std::min;
