// What local_response_norm.cu launches.
#pragma once

#include "backend/cuda/rows.h"

namespace lockstep::cuda {

struct LrnLaunch {
  Rows shape;
  int64_t size = 0;
  float alpha_over_size = 0, beta = 0, k = 0;
};
void launch_lrn(cudaStream_t stream, DType dtype, const LrnLaunch& lrn, const void* x, void* y);
void launch_lrn_grad(cudaStream_t stream, DType dtype, const LrnLaunch& lrn, const void* x, const void* dy, void* dx);

}  // namespace lockstep::cuda
