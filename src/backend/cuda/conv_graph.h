// A convolution, alone or fused, as cuDNN's frontend draws it.
#pragma once

#include <cudnn_frontend.h>

#include <vector>

#include "backend/cuda/conv_plan.h"

namespace lockstep::cuda {

// Draws the problem into an empty graph. Tensors have the numbers of TensorId.
void draw(cudnn_frontend::graph::Graph& graph, const ConvProblem& problem);

// Which engines the backend accepts for a problem: they give the same bits in every run, are not compiled at start, and
// compute float32 in full precision.
struct EngineConditions {
  std::vector<cudnn_frontend::NumericalNote_t> unwanted;
  std::vector<cudnn_frontend::BehaviorNote_t> unwanted_behavior;
  int64_t most_workspace_bytes = 0;
  bool prefers_tensor_cores = false;  // only engines on tensor cores are accepted, if there are any

  bool accept(const std::vector<cudnn_frontend::NumericalNote_t>& notes,
              const std::vector<cudnn_frontend::BehaviorNote_t>& behavior, int64_t workspace_bytes) const;
};
EngineConditions conditions_of(const ConvProblem& problem);

}  // namespace lockstep::cuda
