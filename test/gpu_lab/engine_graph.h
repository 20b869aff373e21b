// A convolution as the backend draws it, alone or fused with what stands around it, with no condition on engines.
#pragma once

#include <cudnn_frontend.h>

#include <string_view>

#include "backend/cuda/conv_graph.h"

namespace lockstep::lab {

using cuda::Fusion;
using enum cuda::TensorId;

inline constexpr std::string_view kFusionNames[] = {"none", "statistics", "normalized + statistics",
                                                    "normalized, gradient by weights", "gradient by input, ReLU, norm"};
cuda::ConvKind kind_of(Fusion fusion);

class EngineGraph final : public cudnn_frontend::graph::Graph {
 public:
  void draw(const cuda::ConvProblem& problem, Fusion fusion = Fusion::none);
  // Whether cuDNN has engines for it; they are not built yet.
  bool find_engines(cudnnHandle_t handle);
  bool has(int64_t engine, cudnn_frontend::NumericalNote_t note) const;
  // Whether the backend accepts it, but for the preference of tensor cores.
  bool is_accepted(int64_t engine, const cuda::EngineConditions& conditions) const;
  bool compiles_at_run_time(int64_t engine) const;
};

}  // namespace lockstep::lab
