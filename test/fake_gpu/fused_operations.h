// What cuDNN fuses with a convolution, computed on the host from tensors of any strides: pointwise operations, sums
// over the pixels of each channel, and the gradients of a batch norm's vectors.
#pragma once

#include "test/fake_gpu/convolution.h"

namespace lockstep::fake_gpu {

enum class PointwiseMode : uint8_t { add, multiply, subtract, relu, relu_gradient };

// out = mode(alpha1 a, alpha2 b). A dimension of a or b that is 1 is repeated. For relu_gradient a is dy and b is x;
// relu has no b.
struct Pointwise {
  PointwiseMode mode = PointwiseMode::add;
  DnnTensor a, b, out;
  double alpha1 = 1, alpha2 = 1;

  const char* trouble() const;
  void run() const;
};

// over images and pixels, of each channel: its sum and the sum of its squares.
struct ChannelStatistics {
  DnnTensor x, sum, squares;

  const char* trouble() const;
  void run() const;
};

// Of y = scale (x - mean) inverse_deviation + bias, whose gradient by y is dy: the gradients of the vectors, and what
// dx is made of, dx = by_dy dy + by_x x + constant.
struct NormGradients {
  DnnTensor x, dy, mean, inverse_deviation, scale;
  DnnTensor dscale, dbias, by_dy, by_x, constant;

  const char* trouble() const;
  void run() const;
};

}  // namespace lockstep::fake_gpu
