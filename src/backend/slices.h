// Which tensors of an operation a backend reads and writes as channel slices (TensorDesc::parent_channels).
#pragma once

#include <cstddef>

#include "lockstep/ops/ops.h"

namespace lockstep {

// The first `inputs` inputs, and the first output.
struct Slices {
  size_t inputs = 0;
  bool output = false;
};
inline constexpr Slices kNoSlices{}, kImageSlices{1, true}, kGradientSlices{2, true};

// Operations that no backend computes on slices: libraries need dense tensors, and other kernels do not support slices.
// A new operation is added here, or each backend names it among its slices.
template <class Operation>
concept DenseOnly =
    OneOf<Operation, Conv2d, Conv2dGradInput, Conv2dGradWeights, Linear, LinearGradInput, LinearGradWeights,
          EmbeddingBag, EmbeddingBagGrad, BatchMoments, SyncBatchNormSums, SyncBatchNorm, SyncBatchNormGradSums,
          SyncBatchNormGrad, SumOverRanks, Relu, ReluGrad, Add, Dropout, LocalResponseNorm, LocalResponseNormGrad,
          Concat, Slice, Reshape, Reorder, Cast, SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad>;

}  // namespace lockstep
