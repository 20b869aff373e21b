// The operations a graph is made of: plain structs of attributes, each with the facts that hold for it everywhere. Each
// comment gives inputs -> outputs with their shapes. Those of batch norm are in batch_norm.h, convolutions in conv2d.h.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/ops/batch_norm.h"
#include "lockstep/ops/conv2d.h"
#include "lockstep/ops/op_facts.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// ---- fully connected: x [N,I], weights [O,I], bias [O], y [N,O]
struct Linear {  // x, weights (, bias) -> y
  static constexpr OpFacts facts{.name = "Linear",
                                 .differentiable = true,
                                 .onnx = true,
                                 .lowered_inputs = kAllInputs,
                                 .product = Product{.y = output_operand(0), .weights = input_operand(1)}};
  bool bias = true;
};
struct LinearGradInput {  // dy, weights -> dx
  static constexpr OpFacts facts =
      internal_op("LinearGradInput", Product{.y = input_operand(0), .weights = input_operand(1)});
};
struct LinearGradWeights {  // x, dy -> dweights (, dbias)
  static constexpr OpFacts facts =
      internal_op("LinearGradWeights", Product{.y = input_operand(1), .weights = output_operand(0)});
  bool bias = true;
};

// ---- embedding sum: table [V,D], ids i32[N,L] below V, values [N,L], bias [D], y [N,D]. A sample has at most L ids;
// the first one below 0 ends it. y[n] = bias + sum over l of values[n,l] * table[ids[n,l]]
struct EmbeddingBag {  // table, ids, values, bias -> y
  static constexpr OpFacts facts{.name = "EmbeddingBag", .differentiable = true, .onnx = true, .lowered_inputs = 0};
};
struct EmbeddingBagGrad {  // dy, ids, values -> dtable, dbias
  static constexpr OpFacts facts = internal_op("EmbeddingBagGrad");
  int64_t vocabulary = 0;  // V
};

// ---- pointwise
struct Relu {  // x -> y
  static constexpr OpFacts facts{
      .name = "Relu", .differentiable = true, .onnx = true, .lowered_inputs = 0, .in_place_input = 0};
  bool six = false;  // ReLU6: nothing above 6
};
struct ReluGrad {  // y, dy -> dx
  static constexpr OpFacts facts = internal_op("ReluGrad", 1);
  bool six = false;
};
struct Add {  // x1, ..., xk (k >= 2, equal shapes) -> y
  static constexpr OpFacts facts{
      .name = "Add", .differentiable = true, .onnx = true, .lowered_inputs = kAllInputs, .in_place_input = 0};
};
// Inverted dropout: keeps element i of sample n when unit(random_key(step key, node_key), (first + n) * E + i) >= rate
// and divides by 1 - rate (E elements a sample, counted in logical order). Its gradient is the same operation on dy.
// `step` is i32[4]: the 64-bit step key, then the 64-bit global index of this rank's first sample (low word first).
struct Dropout {  // x, step -> y
  static constexpr OpFacts facts{
      .name = "Dropout", .differentiable = true, .onnx = false, .lowered_inputs = 0, .in_place_input = 0};
  double rate = 0.5;
  uint64_t node_key = 0;
};

// ---- pooling
struct MaxPool {  // x -> y, saved
  static constexpr OpFacts facts{
      .name = "MaxPool", .differentiable = true, .onnx = true, .lowered_inputs = 0, .saved_output = 1};
  Window window;
};
struct MaxPoolGrad {  // dy, saved -> dx
  static constexpr OpFacts facts = internal_op("MaxPoolGrad");
  Window window;
  Shape input;
};
struct MaxPoolGradSum {  // dy, saved, x1, ..., xk -> dx + x1 + ... + xk
  static constexpr OpFacts facts = internal_op("MaxPoolGradSum", 2);
  Window window;
  Shape input;
};
struct AvgPool {  // x -> y
  static constexpr OpFacts facts{.name = "AvgPool", .differentiable = true, .onnx = true, .lowered_inputs = 0};
  Window window;
  bool count_include_pad = true;
};
struct AvgPoolGrad {  // dy -> dx
  static constexpr OpFacts facts = internal_op("AvgPoolGrad");
  Window window;
  bool count_include_pad = true;
  Shape input;
};

// ---- local response normalization across channels (Krizhevsky et al. 2012), as torch.nn.LocalResponseNorm:
// y = x / (k + alpha / size * sum of squares over `size` channels around)^beta
struct LocalResponseNorm {  // x -> y
  static constexpr OpFacts facts{
      .name = "LocalResponseNorm", .differentiable = true, .onnx = true, .lowered_inputs = 0};
  int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 1.0;
};
struct LocalResponseNormGrad {  // x, dy -> dx
  static constexpr OpFacts facts = internal_op("LocalResponseNormGrad");
  int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 1.0;
};

// ---- shape and placement
struct Concat {  // x1 [N,C1,H,W], ..., xk -> y [N,C1+...+Ck,H,W]
  static constexpr OpFacts facts{.name = "Concat", .differentiable = true, .onnx = true, .lowered_inputs = kAllInputs};
};
struct Slice {  // x [N,C,H,W] -> y [N,count,H,W]: channels begin .. begin+count
  static constexpr OpFacts facts{.name = "Slice", .differentiable = true, .onnx = false, .lowered_inputs = 0};
  int64_t begin = 0, count = 0;
};
struct Reshape {  // x -> y, equal element count, both plain: y may share x's memory
  static constexpr OpFacts facts{.name = "Reshape", .differentiable = true, .onnx = true, .lowered_inputs = 0};
  Shape shape;
};
struct Reorder {  // x -> y, same shape and type, other format
  static constexpr OpFacts facts = internal_op("Reorder");
};
struct Cast {  // x -> y: other element type, possibly other format too
  static constexpr OpFacts facts{
      .name = "Cast", .differentiable = true, .onnx = false, .lowered_inputs = 0, .converts = true};
  DType to = DType::f32;
};
struct CastMany {  // x1, ..., xk -> y1, ..., yk: Casts in one kernel
  static constexpr OpFacts facts{
      .name = "CastMany", .differentiable = false, .onnx = false, .lowered_inputs = 0, .converts = true};
  DType to = DType::f32;
};

// ---- images from bytes: pixels u8[N,H,W,3], changes f32[N,kImageChanges] (pixels.h), y [N,3,H,W]. Each image is
// mirrored as its row says. With `distort`, its values are scaled to 0..1 and its colors distorted in the order of
// distort_color (data/image/color_distortion.h); then y = x * scale + shift by channel.
struct PreparePixels {  // pixels (, changes) -> y
  static constexpr OpFacts facts{
      .name = "PreparePixels", .differentiable = false, .onnx = false, .lowered_inputs = 0, .converts = true};
  std::array<float, 3> scale{1, 1, 1}, shift{};
  bool changes = false;  // reads them
  bool distort = false;
  DType to = DType::f32;
};

// ---- loss: logits [N,K], labels i32[N], weights [N] (0 leaves a sample out)
// probabilities [N,K]; loss []: sum over n of weight * cross-entropy against (1-s) one_hot + s/K (s = label
// smoothing); correct i32[2]: samples of weight > 0 whose label is among the 1 and the 5 largest logits (ties go to
// the lower class index).
struct SoftmaxCrossEntropy {  // logits, labels, weights -> probabilities, loss, correct
  static constexpr OpFacts facts{
      .name = "SoftmaxCrossEntropy", .differentiable = true, .onnx = true, .lowered_inputs = 0};
  double label_smoothing = 0;
};
// loss_scale [] multiplies the gradient, so that small ones survive in f16; the update divides by it.
struct SoftmaxCrossEntropyGrad {  // probabilities, labels, weights (, loss_scale) -> scale * weight * (p - target)
  static constexpr OpFacts facts = internal_op("SoftmaxCrossEntropyGrad", 0);
  double label_smoothing = 0;
  double scale = 1;
};

}  // namespace lockstep
