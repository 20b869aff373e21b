// A convolution, alone or fused, as cuDNN's frontend draws it.
#pragma once

#include <cudnn_frontend.h>

#include "backend/cuda/conv_plan.h"

namespace lockstep::cuda {

// Draws the problem into an empty graph. Tensors have the numbers of TensorId.
void draw(cudnn_frontend::graph::Graph& graph, const ConvProblem& problem);

}  // namespace lockstep::cuda
