// The closed set of operations, and the functions that apply to all of them. Shape inference, gradient rules and every
// backend's compile() are overload sets over this variant: anything that an operation lacks, even a fact, is a compile
// error.
#pragma once

#include <concepts>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/ops/operations.h"

namespace lockstep {

using Op =
    std::variant<Conv2d, Conv2dGradInput, Conv2dGradWeights, Linear, LinearGradInput, LinearGradWeights, EmbeddingBag,
                 EmbeddingBagGrad, BatchNorm, BatchNormGrad, BatchNormInference, BatchNormInferenceGrad, BatchMoments,
                 SyncBatchNormSums, SyncBatchNorm, SyncBatchNormGradSums, SyncBatchNormGrad, SumOverRanks, Relu,
                 ReluGrad, Add, Dropout, MaxPool, MaxPoolGrad, AvgPool, AvgPoolGrad, LocalResponseNorm,
                 LocalResponseNormGrad, Concat, Slice, Reshape, Reorder, Cast, SoftmaxCrossEntropy,
                 SoftmaxCrossEntropyGrad, Conv2dStatistics, Conv2dNormalizedGradWeights, Conv2dGradInputNorm,
                 BatchNormGradApply, BatchNormOfSums, BatchNormStatistics, BatchNormOfSumsGrad, BatchNormMaxPool,
                 BatchNormMaxPoolGrad, MaxPoolGradSum, CastMany, BatchNormGradSums, BatchNormGradOfSums,
                 AvgPoolStatistics, BatchNormMaxPoolGradOfSums, MaxPoolGradNormSums, PreparePixels>;

std::string_view op_name(const Op& op);

// Returns the output descriptions for the given inputs, in plain format; `saved` outputs come as u8[0] until the
// backend has named their size. Throws Error(config) that names the operation and the shapes when they do not fit.
std::vector<TensorDesc> infer(const Op& op, std::span<const TensorDesc> inputs);

// As in OpFacts.
int in_place_input(const Op& op);
int saved_output(const Op& op);
int lowered_inputs(const Op& op);
bool converts(const Op& op);

// Multiply-adds of one execution (convolutions and linear layers; 0 for the rest).
int64_t multiply_adds(const Op& op, std::span<const TensorDesc> inputs, std::span<const TensorDesc> outputs);

template <class Operation, class... Others>
concept OneOf = (std::same_as<Operation, Others> || ...);

// An operation without a `saved` output.
template <class Operation>
concept SavesNothing = Operation::facts.saved_output < 0;

// An operation that a backend may lack; Backend::can says for which shapes it has it.
template <class Operation>
concept Fused = OneOf<Operation, Conv2dStatistics, Conv2dNormalizedGradWeights, Conv2dGradInputNorm, BatchNormGradApply,
                      BatchNormOfSums, BatchNormStatistics, BatchNormOfSumsGrad, BatchNormMaxPool, BatchNormMaxPoolGrad,
                      MaxPoolGradSum, CastMany, BatchNormGradSums, BatchNormGradOfSums, AvgPoolStatistics,
                      BatchNormMaxPoolGradOfSums, MaxPoolGradNormSums, PreparePixels>;

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

}  // namespace lockstep
