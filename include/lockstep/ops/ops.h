// The closed set of operations a graph is made of: plain structs of attributes in one std::variant. Each comment
// gives inputs -> outputs with their shapes. Shape inference, gradient rules and every backend's compile() are
// overload sets over this variant, so an operation that is missing somewhere is a compile error there.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A sliding window over H and W.
struct Window {
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;  // on both sides
  bool operator==(const Window&) const = default;
};

// ---- convolution: x [N,I,H,W], weights [O,I,kh,kw], bias [O], y [N,O,H',W']
struct Conv2d {  // x, weights (, bias) -> y
  Window window;
  bool bias = false;
};
struct Conv2dGradInput {  // dy, weights -> dx
  Window window;
  Shape input;  // [N,I,H,W]
};
struct Conv2dGradWeights {  // x, dy -> dweights (, dbias)
  Window window;
  bool bias = false;
};

// ---- fully connected: x [N,I], weights [O,I], bias [O], y [N,O]
struct Linear {};             // x, weights, bias -> y
struct LinearGradInput {};    // dy, weights -> dx
struct LinearGradWeights {};  // x, dy -> dweights, dbias

// ---- embedding sum: table [V,D], ids i32[N,L] below V, values [N,L], bias [D], y [N,D]. A sample has at most L ids;
// the first one below 0 ends it. y[n] = bias + sum over l of values[n,l] * table[ids[n,l]]
struct EmbeddingBag {};    // table, ids, values, bias -> y
struct EmbeddingBagGrad {  // dy, ids, values -> dtable, dbias
  int64_t vocabulary = 0;  // V
};

// ---- batch norm over N, H, W (Ioffe and Szegedy 2015); mean, var, scale, shift [C]; var is the biased variance.
// All of [C] are of the element type of the scale, which need not be that of the images.
// `saved` is a byte blob whose size the backend names (the mask of the fused ReLU; empty otherwise).
struct BatchNorm {  // x, scale, shift -> y, mean, var, saved
  double epsilon = 1e-3;
  bool relu = false;
};
struct BatchNormGrad {  // x, dy, scale, mean, var, saved -> dx, dscale, dshift
  double epsilon = 1e-3;
  bool relu = false;
};
struct BatchNormInference {  // x, scale, shift, running_mean, running_var -> y
  double epsilon = 1e-3;
  bool relu = false;
};
// What the ranks sum so that every one can compute the moments of the global batch. With d = mean - running_mean
// (the shift keeps float32 sums accurate) and N the samples of this rank: first = N d, second = N (var + d^2).
struct BatchMoments {   // mean, var, running_mean -> first [C], second [C]
  int64_t samples = 0;  // N
};

// ---- batch norm over the samples of all ranks. What a rank finds of its own samples is summed over ranks in between:
//   x -> SyncBatchNormSums -> SumOverRanks -> SyncBatchNorm -> y
//   dy -> SyncBatchNormGradSums -> SumOverRanks -> SyncBatchNormGrad -> dx
// `values` is the number of values of a channel on all ranks together; d = x - running_mean (the shift keeps float32
// sums accurate).
struct SyncBatchNormSums {};  // x, running_mean -> sums [2C]: of d, then of d^2
struct SyncBatchNorm {        // x, scale, shift, running_mean, sums -> y, mean, var, saved
  double epsilon = 1e-3;
  bool relu = false;
  int64_t values = 0;
};
struct SyncBatchNormGradSums {  // x, dy, scale, mean, var, saved -> dscale, dshift, sums [2C]: the two once more
  double epsilon = 1e-3;
  bool relu = false;
};
struct SyncBatchNormGrad {  // x, dy, scale, mean, var, saved, sums -> dx
  double epsilon = 1e-3;
  bool relu = false;
  int64_t values = 0;
};
// x [K] -> y [K]: its kernel copies, where y is not x's memory already; the executable then has the ranks sum y.
struct SumOverRanks {};

// ---- pointwise
struct Relu {};      // x -> y
struct ReluGrad {};  // y, dy -> dx
struct Add {};       // x1, ..., xk (k >= 2, equal shapes) -> y
// Inverted dropout: keeps element i of sample n when unit(random_key(step key, node_key), (first + n) * E + i) >= rate
// and divides by 1 - rate (E elements a sample, counted in logical order). Its gradient is the same operation on dy.
// `step` is i32[4]: the 64-bit step key, then the 64-bit global index of this rank's first sample (low word first).
struct Dropout {  // x, step -> y
  double rate = 0.5;
  uint64_t node_key = 0;
};

// ---- pooling
struct MaxPool {  // x -> y, saved
  Window window;
};
struct MaxPoolGrad {  // dy, saved -> dx
  Window window;
  Shape input;
};
struct AvgPool {  // x -> y
  Window window;
  bool count_include_pad = true;
};
struct AvgPoolGrad {  // dy -> dx
  Window window;
  bool count_include_pad = true;
  Shape input;
};

// ---- local response normalization across channels (Krizhevsky et al. 2012), as torch.nn.LocalResponseNorm:
// y = x / (k + alpha / size * sum of squares over `size` channels around)^beta
struct LocalResponseNorm {  // x -> y
  int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 1.0;
};
struct LocalResponseNormGrad {  // x, dy -> dx
  int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 1.0;
};

// ---- shape and placement
struct Concat {};  // x1 [N,C1,H,W], ..., xk -> y [N,C1+...+Ck,H,W]
struct Slice {     // x [N,C,H,W] -> y [N,count,H,W]: channels begin .. begin+count
  int64_t begin = 0, count = 0;
};
struct Reshape {  // x -> y, equal element count, both plain: y may share x's memory
  Shape shape;
};
struct Reorder {  // x -> y, same shape and type, other format
};
struct Cast {  // x -> y: other element type, possibly other format too
  DType to = DType::f32;
};

// ---- loss: logits [N,K], labels i32[N], weights [N] (0 leaves a sample out)
// probabilities [N,K]; loss []: sum over n of weight * cross-entropy against (1-s) one_hot + s/K (s = label
// smoothing); correct i32[2]: samples of weight > 0 whose label is among the 1 and the 5 largest logits (ties go to
// the lower class index).
struct SoftmaxCrossEntropy {  // logits, labels, weights -> probabilities, loss, correct
  double label_smoothing = 0;
};
// loss_scale [] multiplies the gradient, so that small ones survive in f16; the update divides by it.
struct SoftmaxCrossEntropyGrad {  // probabilities, labels, weights (, loss_scale) -> scale * weight * (p - target)
  double label_smoothing = 0;
  double scale = 1;
};

using Op =
    std::variant<Conv2d, Conv2dGradInput, Conv2dGradWeights, Linear, LinearGradInput, LinearGradWeights, EmbeddingBag,
                 EmbeddingBagGrad, BatchNorm, BatchNormGrad, BatchNormInference, BatchMoments, SyncBatchNormSums,
                 SyncBatchNorm, SyncBatchNormGradSums, SyncBatchNormGrad, SumOverRanks, Relu, ReluGrad, Add, Dropout,
                 MaxPool, MaxPoolGrad, AvgPool, AvgPoolGrad, LocalResponseNorm, LocalResponseNormGrad, Concat, Slice,
                 Reshape, Reorder, Cast, SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad>;

std::string_view op_name(const Op& op);

// Output descriptions for the given inputs, in plain format; `saved` outputs come as u8[0] until the backend has
// named their size. Throws Error(config) that names the operation and the shapes when they do not fit.
std::vector<TensorDesc> infer(const Op& op, std::span<const TensorDesc> inputs);

// The input whose memory output 0 may take over when this operation is its last reader and both lie alike; -1: none.
int in_place_input(const Op& op);

// Index of the `saved` output, or -1.
int saved_output(const Op& op);

// Multiply-adds of one execution (convolutions and linear layers; 0 for the rest).
int64_t multiply_adds(const Op& op, std::span<const TensorDesc> inputs, std::span<const TensorDesc> outputs);

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

}  // namespace lockstep
