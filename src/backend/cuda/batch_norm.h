// What batch_norm.cu launches.
#pragma once

#include "backend/cuda/pool.h"
#include "backend/cuda/rows.h"

namespace lockstep::cuda {

// x, scale and shift, from which y is made: what every forward kernel has.
struct NormForward {
  Rows shape;
  float epsilon = 0;
  bool relu = false;
  RowsIn x;
  const float *scale = nullptr, *shift = nullptr;
  RowsOut y;
};
// What a forward pass leaves: mean and biased variance, and saved = slope [C], then shift [C].
struct NormStatistics {
  float *mean = nullptr, *var = nullptr, *saved = nullptr;
};
void launch_norm(cudaStream_t stream, DType dtype, const NormForward& args, const NormStatistics& statistics,
                 const SumsMemory& memory);

struct RunningStatistics {
  const float *mean = nullptr, *var = nullptr;
};
void launch_norm_inference(cudaStream_t stream, DType dtype, const NormForward& args, const RunningStatistics& running);

// x, the gradient of y, and what the forward pass left: what every gradient kernel has. `values`: how many values of a
// channel the statistics are of; infinity: they are running statistics, on which no value has influence.
struct NormBackward {
  Rows shape;
  float epsilon = 0;
  bool relu = false;
  RowsIn x, dy;
  const float *mean = nullptr, *var = nullptr, *factor = nullptr, *shift = nullptr;
  double values = 0;
};
struct NormGradients {
  RowsOut dx;
  float *dscale = nullptr, *dshift = nullptr;
};
struct NormScratch {
  SumsMemory sums;
  float* coefficients = nullptr;  // [2,C]
};
void launch_norm_grad(cudaStream_t stream, DType dtype, const NormBackward& args, const NormGradients& gradients,
                      const NormScratch& scratch);

// Fills `saved` [2,C], which BatchNormInference does not leave, as launch_norm would.
void launch_running_slopes(cudaStream_t stream, const NormBackward& args, const float* scale, const float* shift,
                           float* saved);

// What BatchNormOfSums and BatchNormStatistics make of a channel's moments. slope and offset are of the type of the
// images, the rest is f32.
struct NormVectors {
  float samples = 0, epsilon = 0;
  const float *scale = nullptr, *shift = nullptr, *running_mean = nullptr;
  float *mean = nullptr, *var = nullptr, *inverse = nullptr, *factor = nullptr;
  void *slope = nullptr, *offset = nullptr;
  float *first = nullptr, *second = nullptr;
};
struct ChannelSums {
  int64_t channels = 0;
  double values = 0;  // of a channel
  const float *sum = nullptr, *squares = nullptr;
};
void launch_norm_of_sums(cudaStream_t stream, DType dtype, const ChannelSums& sums, const NormVectors& vectors);
void launch_norm_statistics(cudaStream_t stream, DType dtype, Rows shape, RowsIn x, const NormVectors& vectors,
                            const SumsMemory& memory);

// AvgPoolStatistics.
void launch_avg_pool_statistics(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn x, RowsOut y,
                                const NormVectors& vectors, const SumsMemory& memory);

// BatchNormMaxPool.
struct NormPool {
  RowsIn x;
  const float *mean = nullptr, *factor = nullptr, *shift = nullptr;
  RowsOut y;
  uint8_t* saved = nullptr;
};
void launch_norm_max_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const NormPool& args);
// BatchNormMaxPoolGrad: args.dy is the gradient of what is pooled.
struct PooledImage {
  const uint8_t* saved = nullptr;
  RowsIn y;  // for the sums; null: they are those of x
};
void launch_norm_max_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const PooledImage& pooled,
                               const NormBackward& args, const NormGradients& gradients, const NormScratch& scratch);

// BatchNormGradSums.
struct NormalizedSums {
  Rows shape;
  RowsIn y, dy;
  const float* shift = nullptr;
  float *dshift = nullptr, *by_y = nullptr, *constant = nullptr;
};
void launch_norm_grad_sums(cudaStream_t stream, DType dtype, const NormalizedSums& args, const SumsMemory& memory);
// MaxPoolGradNormSums: the sums over dx, which is written; args.dy is not read.
void launch_max_pool_grad_norm_sums(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn dy,
                                    const uint8_t* saved, const NormalizedSums& args, std::span<void* const> summands,
                                    RowsOut dx, const SumsMemory& memory);
// BatchNormGradOfSums.
struct NormalizedGradient {
  Rows shape;
  bool relu = false;
  RowsIn x, dy;
  const float *shift = nullptr, *mean = nullptr, *factor = nullptr, *by_y = nullptr, *constant = nullptr;
  float share = 1;  // multiplies the last two
  RowsOut dx;
};
void launch_norm_grad_of_sums(cudaStream_t stream, DType dtype, const NormalizedGradient& args);
// BatchNormMaxPoolGradOfSums: args.dy is the gradient of what is pooled.
void launch_norm_max_pool_grad_of_sums(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const uint8_t* saved,
                                       const NormalizedGradient& args);

// BatchNormGradApply.
struct CoefficientGradient {
  Rows shape;
  RowsIn dz, x;
  const float *by_dz = nullptr, *by_x = nullptr, *constant = nullptr;
  RowsOut dx;
};
void launch_norm_grad_apply(cudaStream_t stream, DType dtype, const CoefficientGradient& args);

// BatchMoments, f32.
struct MomentTerms {
  int64_t channels = 0;
  float samples = 0;
  const float *mean = nullptr, *var = nullptr, *running_mean = nullptr;
  float *first = nullptr, *second = nullptr;
};
void launch_moments(cudaStream_t stream, const MomentTerms& terms);

// Over the samples of all ranks. SyncBatchNormSums:
void launch_sync_norm_sums(cudaStream_t stream, DType dtype, Rows shape, RowsIn x, const float* running_mean,
                           float* sums, const SumsMemory& memory);
// `values`: of a channel, on all ranks together, whose SyncBatchNormSums were added up to `sums`.
struct JointSums {
  double values = 0;
  const float *running_mean = nullptr, *sums = nullptr;
};
void launch_sync_norm(cudaStream_t stream, DType dtype, const NormForward& args, const JointSums& joint,
                      const NormStatistics& statistics);
// SyncBatchNormGradSums.
struct GradientSums {
  float *dscale = nullptr, *dshift = nullptr, *sums = nullptr;
};
void launch_sync_norm_grad_sums(cudaStream_t stream, DType dtype, const NormBackward& args, const GradientSums& own,
                                const SumsMemory& memory);
// SyncBatchNormGrad. `values`: as of JointSums.
struct JointGradient {
  double values = 0;
  const float* sums = nullptr;  // of the ranks' SyncBatchNormGradSums
  RowsOut dx;
  float* coefficients = nullptr;  // [2,C] of scratch memory
};
void launch_sync_norm_grad(cudaStream_t stream, DType dtype, const NormBackward& args, const JointGradient& joint);

}  // namespace lockstep::cuda
