// The operations of batch norm (see operations.h).
#pragma once

#include <cstdint>

#include "lockstep/ops/conv2d.h"
#include "lockstep/ops/op_facts.h"

namespace lockstep {

// ---- batch norm over N, H, W (Ioffe and Szegedy 2015); mean, var, scale, shift [C]; var is the biased variance.
// All vectors [C] have the element type of the scale, which need not be that of the images.
// `saved` is a byte blob whose size the backend names (the mask of the fused ReLU; empty otherwise).
struct BatchNorm {  // x, scale, shift -> y, mean, var, saved
  static constexpr OpFacts facts{
      .name = "BatchNorm", .differentiable = true, .onnx = false, .lowered_inputs = 1, .saved_output = 3};
  double epsilon = 1e-3;
  bool relu = false;
};
struct BatchNormGrad {  // x, dy, scale, mean, var, saved -> dx, dscale, dshift
  static constexpr OpFacts facts = internal_op("BatchNormGrad", 1);
  double epsilon = 1e-3;
  bool relu = false;
};
// Batch norm in evaluation, and in training with frozen statistics.
struct BatchNormInference {  // x, scale, shift, running_mean, running_var -> y
  static constexpr OpFacts facts{
      .name = "BatchNormInference", .differentiable = true, .onnx = true, .lowered_inputs = 1, .in_place_input = 0};
  double epsilon = 1e-3;
  bool relu = false;
};
// Like BatchNormGrad, but the statistics do not depend on x. The ReLU's mask is recomputed.
struct BatchNormInferenceGrad {  // x, dy, scale, running_mean, running_var, shift -> dx, dscale, dshift
  static constexpr OpFacts facts = internal_op("BatchNormInferenceGrad", 1);
  double epsilon = 1e-3;
  bool relu = false;
};
// The values that the ranks sum so that each can compute the moments of the global batch. With d = mean - running_mean
// (the shift keeps float32 sums accurate) and N the samples of this rank: first = N d, second = N (var + d^2).
struct BatchMoments {  // mean, var, running_mean -> first [C], second [C]
  static constexpr OpFacts facts = internal_op("BatchMoments");
  int64_t samples = 0;  // N
};

// ---- batch norm over the samples of all ranks. The sums over a rank's own samples are summed over ranks in between:
//   x -> SyncBatchNormSums -> SumOverRanks -> SyncBatchNorm -> y
//   dy -> SyncBatchNormGradSums -> SumOverRanks -> SyncBatchNormGrad -> dx
// `values` is the number of values of a channel on all ranks together; d = x - running_mean (the shift keeps float32
// sums accurate).
struct SyncBatchNormSums {  // x, running_mean -> sums [2C]: of d, then of d^2
  static constexpr OpFacts facts{
      .name = "SyncBatchNormSums", .differentiable = false, .onnx = false, .lowered_inputs = 1};
};
struct SyncBatchNorm {  // x, scale, shift, running_mean, sums -> y, mean, var, saved
  static constexpr OpFacts facts{
      .name = "SyncBatchNorm", .differentiable = true, .onnx = false, .lowered_inputs = 1, .saved_output = 3};
  double epsilon = 1e-3;
  bool relu = false;
  int64_t values = 0;
};
struct SyncBatchNormGradSums {  // x, dy, scale, mean, var, saved -> dscale, dshift, sums [2C]: the two once more
  static constexpr OpFacts facts = internal_op("SyncBatchNormGradSums");
  double epsilon = 1e-3;
  bool relu = false;
};
struct SyncBatchNormGrad {  // x, dy, scale, mean, var, saved, sums -> dx
  static constexpr OpFacts facts = internal_op("SyncBatchNormGrad", 1);
  double epsilon = 1e-3;
  bool relu = false;
  int64_t values = 0;
};
// x [K] -> y [K]: its kernel copies x unless y has the same memory; the executable then sums y over the ranks.
struct SumOverRanks {
  static constexpr OpFacts facts = internal_op("SumOverRanks", 0);
};

// ---- batch norm beside convolutions that compute parts of it, whose vectors conv2d.h explains

// The vectors of a batch norm, and its BatchMoments, from sums over its image. The sums are not shifted: var = squares
// / values - mean^2 has an error of about 2^-24 (1 + mean^2 / var) of itself for each rounding of the float32 sums.
struct BatchNormOfSums {
  // sum, squares, scale, shift, running_mean -> mean, var, inverse, factor, slope, offset, first, second
  static constexpr OpFacts facts = internal_op("BatchNormOfSums");
  double epsilon = 1e-3;
  int64_t values = 0;     // of a channel
  int64_t samples = 0;    // as of BatchMoments
  int64_t begin = 0;      // the sums are of more channels; those of this batch norm begin here
  DType to = DType::f32;  // of slope and offset
};
// The same vectors, from the image itself: its sums are shifted by the channel's first value, so that they do not
// cancel.
struct BatchNormStatistics {
  // x, scale, shift, running_mean -> mean, var, inverse, factor, slope, offset, first, second
  static constexpr OpFacts facts = internal_op("BatchNormStatistics");
  double epsilon = 1e-3;
  int64_t samples = 0;    // as of BatchMoments
  DType to = DType::f32;  // of slope and offset
};
// The average pool that a batch norm reads, and the vectors of BatchNormStatistics.
struct AvgPoolStatistics {
  // x, scale, shift, running_mean -> y, mean, var, inverse, factor, slope, offset, first, second
  static constexpr OpFacts facts = internal_op("AvgPoolStatistics");
  Window window;
  bool count_include_pad = true;
  double epsilon = 1e-3;
  int64_t samples = 0;
  DType to = DType::f32;
};
struct BatchNormOfSumsGrad {  // x, dy, shift, mean, var, factor -> dx, dscale, dshift
  static constexpr OpFacts facts = internal_op("BatchNormOfSumsGrad", 1);
  double epsilon = 1e-3;
  bool relu = false;
};
// The max pool of relu(factor (x - mean) + shift), which is not written, and its gradient.
struct BatchNormMaxPool {  // x, shift, mean, factor -> y, saved
  static constexpr OpFacts facts{
      .name = "BatchNormMaxPool", .differentiable = false, .onnx = false, .lowered_inputs = 0, .saved_output = 1};
  Window window;
};
struct BatchNormMaxPoolGrad {  // x, dy, shift, mean, var, factor, saved (, y) -> dx, dscale, dshift
  static constexpr OpFacts facts = internal_op("BatchNormMaxPoolGrad");
  Window window;
  double epsilon = 1e-3;
  // Sums over the pooled values y instead of x: where y is above 0, x - mean is (y - shift) / factor up to the rounding
  // of y. Only for factors that are not small.
  bool pooled_sums = false;
};
// For a scale fixed at 1: the gradient of adjacent batch norms, computed from y = relu(u), u = factor (x - mean) +
// shift, which is one image for all of them. Where y is above 0, it equals u up to its own rounding.
// dx = factor (dz + by_y u + constant), where dz is dy where y is above 0, and 0 elsewhere; by_y and constant follow
// from the sums of dz and of dz (y - shift). (Conv2dGradInputNorm at y computes both as well.)
struct BatchNormGradSums {  // y, dy, shift -> dshift, by_y, constant
  static constexpr OpFacts facts = internal_op("BatchNormGradSums");
};
// MaxPoolGradSum, and BatchNormGradSums of its result.
struct MaxPoolGradNormSums {  // dy, saved, y, shift, x1, ..., xk -> dx + x1 + ... + xk, dshift, by_y, constant
  static constexpr OpFacts facts = internal_op("MaxPoolGradNormSums", 4);
  Window window;
  Shape input;
};
struct BatchNormGradOfSums {  // x, dy, shift, mean, factor, by_y, constant -> dx, of one of the batch norms
  static constexpr OpFacts facts = internal_op("BatchNormGradOfSums", 1);
  bool relu = false;  // false: dy is dz
  int64_t begin = 0;  // its first channel in by_y and constant
};
// The same before a max pool (BatchNormMaxPool): dy is the gradient of the pool, and by_y and constant are means over
// the pooled values.
struct BatchNormMaxPoolGradOfSums {  // x, dy, shift, mean, factor, saved, by_y, constant -> dx
  static constexpr OpFacts facts = internal_op("BatchNormMaxPoolGradOfSums");
  Window window;
};
struct BatchNormGradApply {  // dz, x, by_dz, by_x, constant -> dx = by_dz dz + by_x x + constant
  static constexpr OpFacts facts = internal_op("BatchNormGradApply", 0);
};

}  // namespace lockstep
