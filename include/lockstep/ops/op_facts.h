// Facts about an operation that depend neither on its tensors nor on its backend: each operation's struct has an
// OpFacts named `facts`.
#pragma once

#include <concepts>
#include <optional>
#include <string_view>

namespace lockstep {

// A member without a default: an aggregate that leaves it out does not compile.
template <class T>
struct Required {
  template <std::convertible_to<T> From>
  constexpr Required(From from) : value(from) {}
  constexpr operator T() const { return value; }
  T value;
};

// One tensor of an operation: an input or an output, by index.
struct Operand {
  bool output = false;
  int index = 0;
};
constexpr Operand input_operand(int index) { return {.output = false, .index = index}; }
constexpr Operand output_operand(int index) { return {.output = true, .index = index}; }

// The product that a convolution or a linear layer computes: y = weights * x. Gradients of it do as much work.
struct Product {
  Operand y;        // the operand with the shape of the layer's output: itself or its gradient
  Operand weights;  // the operand with the shape of the weights: themselves or their gradient
};

constexpr int kAllInputs = 1 << 30;

struct OpFacts {
  Required<std::string_view> name;
  Required<bool> differentiable;  // has a rule in graph/gradients.cc
  Required<bool> onnx;            // can be written as ONNX (exchange/onnx.cc)
  // The number of leading inputs that a mixed-precision run computes with in lower precision: images and factors, in
  // contrast to statistics, indices and labels.
  Required<int> lowered_inputs;
  // The input whose memory output 0 may take over when this operation is its last reader and both have the same format;
  // -1: none.
  int in_place_input = -1;
  int saved_output = -1;           // index of the output whose size the backend names (u8); -1: none
  bool converts = false;           // writes its outputs in whichever of the backend's formats their readers want
  std::optional<Product> product;  // of convolutions and linear layers, which alone count as multiply-adds
};

// The facts of an operation that only gradients and rewrites create.
constexpr OpFacts internal_op(std::string_view name, int in_place_input = -1) {
  return {.name = name, .differentiable = false, .onnx = false, .lowered_inputs = 0, .in_place_input = in_place_input};
}
constexpr OpFacts internal_op(std::string_view name, const Product& product) {
  return {.name = name, .differentiable = false, .onnx = false, .lowered_inputs = 0, .product = product};
}

}  // namespace lockstep
