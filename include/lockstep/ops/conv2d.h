// A window over images, and convolutions, alone and fused with parts of a batch norm (see operations.h).
#pragma once

#include <cstdint>

#include "lockstep/ops/op_facts.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A sliding window over H and W.
struct Window {
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;  // on both sides
  bool operator==(const Window&) const = default;
};

// ---- convolution: x [N,I,H,W], weights [O,I/groups,kh,kw], bias [O], y [N,O,H',W']. Input and output channels are in
// `groups` groups of adjacent ones; a group of outputs reads only its group of inputs.
struct Conv2d {  // x, weights (, bias) -> y
  static constexpr OpFacts facts{.name = "Conv2d",
                                 .differentiable = true,
                                 .onnx = true,
                                 .lowered_inputs = kAllInputs,
                                 .product = Product{.y = output_operand(0), .weights = input_operand(1)}};
  Window window;
  bool bias = false;
  int64_t groups = 1;
};
struct Conv2dGradInput {  // dy, weights -> dx
  static constexpr OpFacts facts =
      internal_op("Conv2dGradInput", Product{.y = input_operand(0), .weights = input_operand(1)});
  Window window;
  Shape input;  // [N,I,H,W]
  int64_t groups = 1;
};
struct Conv2dGradWeights {  // x, dy -> dweights (, dbias)
  static constexpr OpFacts facts =
      internal_op("Conv2dGradWeights", Product{.y = input_operand(1), .weights = output_operand(0)});
  Window window;
  bool bias = false;
  int64_t groups = 1;
};

// ---- convolutions of one group that compute parts of the batch norm before or after them, so that the image is read
// and written less often. graph/passes/fuse_conv_norm.cc creates them where the backend has them (Backend::can).
//
// A batch norm with ReLU is z = relu(factor (x - mean) + shift) with factor = scale inverse and inverse = 1 / sqrt(var
// + epsilon). A convolution that reads x instead of z computes relu(slope x + offset), where slope and offset [I] are
// of the element type of x: slope = factor, offset = shift - slope mean. Other vectors are float32 (float64 where x
// is).

// sum and squares [O]: the sums over images and pixels of y and of y^2. `normalized`: reads x instead of z.
struct Conv2dStatistics {  // x, weights (, slope, offset) -> y, sum, squares
  static constexpr OpFacts facts =
      internal_op("Conv2dStatistics", Product{.y = output_operand(0), .weights = input_operand(1)});
  Window window;
  bool normalized = false;
};
// Conv2dGradWeights at z.
struct Conv2dNormalizedGradWeights {  // x, dy, slope, offset -> dweights
  static constexpr OpFacts facts =
      internal_op("Conv2dNormalizedGradWeights", Product{.y = input_operand(1), .weights = output_operand(0)});
  Window window;
};
// Conv2dGradInput, then the gradients of ReLU and of the batch norm's vectors: dz is the gradient by z where z is above
// 0, and otherwise 0. BatchNormGradApply computes dx from it and the last three vectors.
struct Conv2dGradInputNorm {
  // dy, weights, x, scale, shift, mean, inverse -> dz, dscale, dshift, by_dz, by_x, constant
  static constexpr OpFacts facts =
      internal_op("Conv2dGradInputNorm", Product{.y = input_operand(0), .weights = input_operand(1)});
  Window window;
  Shape input;  // of x
};

}  // namespace lockstep
