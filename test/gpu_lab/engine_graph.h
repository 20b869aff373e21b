// A convolution as cuDNN's frontend draws it, alone or fused with what stands around it, with no condition on engines.
#pragma once

#include <cudnn_frontend.h>

#include <string_view>

#include "backend/cuda/conv_plan.h"

namespace lockstep::lab {

// A batch norm with ReLU before or behind a convolution. Sums and gradients of its vectors come without a pass of their
// own. cuDNN has engines for these in fp16.
enum class Fusion : uint8_t {
  none,
  statistics,             // y = conv(x); the sums of y and of its squares
  normalized_statistics,  // the same of conv(relu(slope x + offset))
  normalized_grad_weights,
  norm_gradients,  // dz = conv's gradient by input where relu(norm(x)) is above 0; the sums of the norm's gradient
};
inline constexpr std::string_view kFusionNames[] = {"none", "statistics", "normalized + statistics",
                                                    "normalized, gradient by weights", "gradient by input, ReLU, norm"};
cuda::ConvKind kind_of(Fusion fusion);

// The numbers of its tensors. All vectors have one element a channel; slope and offset are of the problem's type, the
// others float32.
enum FusedTensor : int64_t {
  kX = 1,
  kWeights,
  kY,
  kGradient,  // dz, of the shape of x
  kSlope,
  kOffset,
  kSum,
  kSquares,
  kMean,
  kInverseDeviation,
  kScale,
  kShift,
  kScaleGradient,
  kShiftGradient,
  kByGradient,  // the gradient by x is kByGradient dz + kByX x + kConstant
  kByX,
  kConstant,
  kAfterLast
};

class EngineGraph final : public cudnn_frontend::graph::Graph {
 public:
  void draw(const cuda::ConvProblem& problem, Fusion fusion = Fusion::none);
  // Whether cuDNN has engines for it; they are not built yet.
  bool find_engines(cudnnHandle_t handle);
  bool has(int64_t engine, cudnn_frontend::NumericalNote_t note) const;
  bool compiles_at_run_time(int64_t engine) const;

 private:
  using Tensor = std::shared_ptr<cudnn_frontend::graph::Tensor_attributes>;
  Tensor input(int64_t id, const Shape& shape);
  Tensor vector(int64_t id, int64_t channels, cudnn_frontend::DataType_t type);
  Tensor apply(cudnn_frontend::PointwiseMode_t mode, const Tensor& a, const Tensor& b);
  Tensor normalized(const Tensor& x, int64_t channels);
  void draw_statistics(const Tensor& y);
  void draw_norm_gradients(const cuda::ConvProblem& problem, const Tensor& dx);

  cudnn_frontend::DataType_t type_{};
};

}  // namespace lockstep::lab
