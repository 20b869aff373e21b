// Convolutions of stride 1 and their gradients by Winograd's method (lanes/winograd_lanes.h): kernels of 3x3, and of
// 1x3 or 1x7 in either direction. Images are float32 in blocks of channels, weights are plain. Nothing depends on
// timing: results are the same for the same number of threads.
#pragma once

#include <memory>

#include "backend/cpu/context.h"

namespace lockstep::cpu {

// A convolution's images; for a gradient, those of the convolution that it belongs to.
struct WinogradConvolution {
  TensorDesc src, dst;
  Window window;
  bool bias;
};

// Whether the method suits the window and is faster than direct convolution for these shapes.
bool winograd_pays(const Context& context, const WinogradConvolution& c);

std::unique_ptr<Kernel> make_winograd_forward(const Context& context, const WinogradConvolution& c);
std::unique_ptr<Kernel> make_winograd_input_gradient(const Context& context, const WinogradConvolution& c);
std::unique_ptr<Kernel> make_winograd_weights_gradient(const Context& context, const WinogradConvolution& c);

}  // namespace lockstep::cpu
