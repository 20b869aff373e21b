// What batch_norm.cu launches.
#pragma once

#include "backend/cuda/rows.h"

namespace lockstep::cuda {

// Batch statistics and what the output is made of: saved = slope [C], then shift [C].
struct NormForward {
  Rows shape;
  float epsilon = 0;
  bool relu = false;
  RowsIn x;
  const float *scale, *shift;
  RowsOut y;
  float *mean, *var, *saved;
  SumsMemory memory;
};
void launch_norm(cudaStream_t stream, DType dtype, const NormForward& args);

struct NormBackward {
  Rows shape;
  float epsilon = 0;
  bool relu = false;
  RowsIn x, dy;
  const float *mean, *var, *saved;
  RowsOut dx;
  float *dscale, *dshift;
  SumsMemory memory;
  float* coefficients;  // [2,C] of scratch memory
};
void launch_norm_grad(cudaStream_t stream, DType dtype, const NormBackward& args);

struct NormInference {
  Rows shape;
  float epsilon = 0;
  bool relu = false;
  RowsIn x;
  const float *scale, *shift, *mean, *var;
  RowsOut y;
};
void launch_norm_inference(cudaStream_t stream, DType dtype, const NormInference& args);
// first, second of BatchMoments; f32
void launch_moments(cudaStream_t stream, int64_t channels, float samples, const float* const (&mean_var_running)[3],
                    float* const (&first_second)[2]);

// Over the samples of all ranks; `values`: of a channel on all of them together.
void launch_sync_norm_sums(cudaStream_t stream, DType dtype, Rows shape, RowsIn x, const float* running_mean,
                           float* sums, const SumsMemory& memory);
struct SyncNormForward {
  Rows shape;
  double values = 0;
  float epsilon = 0;
  bool relu = false;
  RowsIn x;
  const float *scale, *shift, *running_mean, *sums;
  RowsOut y;
  float *mean, *var, *saved;  // as of NormForward
};
void launch_sync_norm(cudaStream_t stream, DType dtype, const SyncNormForward& args);
struct SyncNormBackward {
  Rows shape;
  double values = 0;
  float epsilon = 0;
  bool relu = false;
  RowsIn x, dy;
  const float *mean, *var, *saved;
  float *dscale = nullptr, *dshift = nullptr, *own_sums = nullptr;  // of the sums
  const float* sums = nullptr;                                      // of the gradient: of all ranks
  RowsOut dx = {};
  SumsMemory memory = {};         // of the sums
  float* coefficients = nullptr;  // of the gradient: [2,C] of scratch memory
};
void launch_sync_norm_grad_sums(cudaStream_t stream, DType dtype, const SyncNormBackward& args);
void launch_sync_norm_grad(cudaStream_t stream, DType dtype, const SyncNormBackward& args);

}  // namespace lockstep::cuda
