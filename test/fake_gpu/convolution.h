// A convolution or one of its gradients, computed on the host from tensors of any strides, sums in float32.
#pragma once

#include <array>
#include <cstdint>

#include "test/fake_gpu/element.h"

namespace lockstep::fake_gpu {

// [N,C,H,W] of an image, [K,C,R,S] of weights, C those of a group.
struct DnnTensor {
  Element element = Element::f32;
  std::array<int64_t, 4> dims{}, strides{};
  void* data = nullptr;

  // From the first element to the end of the last.
  size_t bytes() const;
};

enum class ConvDirection : uint8_t { forward, grad_input, grad_weights };

struct Convolution {
  ConvDirection direction = ConvDirection::forward;
  DnnTensor x, weights, y;  // the one of `direction` is written
  std::array<int64_t, 2> padding{}, stride{}, dilation{};
  double alpha = 1, beta = 0;

  const DnnTensor& result() const;
  // What is wrong with its sizes, or nothing.
  const char* trouble() const;
  void run() const;
};

}  // namespace lockstep::fake_gpu
