// The operations of the CPU backend: for each its formats, the size of its saved output, and its kernel, in the file of
// its family.
#pragma once

#include <memory>

#include "backend/cpu/context.h"
#include "lockstep/backend/update.h"

namespace lockstep::cpu {

// Plain format for all inputs and outputs.
FormatChoice all_plain(Descs inputs, Descs outputs);
// This format for the first `leading` inputs and for output 0; plain format for the rest.
FormatChoice leading_in(Format format, size_t leading, Descs inputs, Descs outputs);

// conv2d.cc
FormatChoice choose_formats(const Context& context, const Conv2d& op, Descs inputs, Descs outputs);
FormatChoice choose_formats(const Context& context, const Conv2dGradInput& op, Descs inputs, Descs outputs);
FormatChoice choose_formats(const Context& context, const Conv2dGradWeights& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Conv2d& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradInput& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradWeights& op, Descs inputs, Descs outputs);

// linear.cc
std::unique_ptr<Kernel> compile(const Context& context, const Linear& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const LinearGradInput& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const LinearGradWeights& op, Descs inputs, Descs outputs);

// embedding.cc
std::unique_ptr<Kernel> compile(const Context& context, const EmbeddingBag& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const EmbeddingBagGrad& op, Descs inputs, Descs outputs);

// batch_norm.cc
size_t saved_bytes(const Context& context, const BatchNorm& op, Descs inputs);
size_t saved_bytes(const Context& context, const SyncBatchNorm& op, Descs inputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNorm& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormInference& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchNormInferenceGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const BatchMoments& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNormSums& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNorm& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNormGradSums& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SyncBatchNormGrad& op, Descs inputs, Descs outputs);

// pool.cc
FormatChoice choose_formats(const Context& context, const MaxPool& op, Descs inputs, Descs outputs);
FormatChoice choose_formats(const Context& context, const MaxPoolGrad& op, Descs inputs, Descs outputs);
FormatChoice choose_formats(const Context& context, const AvgPool& op, Descs inputs, Descs outputs);
FormatChoice choose_formats(const Context& context, const AvgPoolGrad& op, Descs inputs, Descs outputs);
size_t saved_bytes(const Context& context, const MaxPool& op, Descs inputs);
std::unique_ptr<Kernel> compile(const Context& context, const MaxPool& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const MaxPoolGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const AvgPool& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const AvgPoolGrad& op, Descs inputs, Descs outputs);

// placement.cc
FormatChoice choose_formats(const Context& context, const Concat& op, Descs inputs, Descs outputs);
FormatChoice choose_formats(const Context& context, const Slice& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Concat& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Slice& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Reshape& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Reorder& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Cast& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SumOverRanks& op, Descs inputs, Descs outputs);

// pointwise.cc
std::unique_ptr<Kernel> compile(const Context& context, const Relu& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const ReluGrad& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Add& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const Dropout& op, Descs inputs, Descs outputs);

// local_response_norm.cc
std::unique_ptr<Kernel> compile(const Context& context, const LocalResponseNorm& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const LocalResponseNormGrad& op, Descs inputs, Descs outputs);

// loss.cc
std::unique_ptr<Kernel> compile(const Context& context, const SoftmaxCrossEntropy& op, Descs inputs, Descs outputs);
std::unique_ptr<Kernel> compile(const Context& context, const SoftmaxCrossEntropyGrad& op, Descs inputs, Descs outputs);

// update.cc
std::unique_ptr<Kernel> compile(const Context& context, const UpdateOp& op);

}  // namespace lockstep::cpu
