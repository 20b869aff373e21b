#include "backend/cuda/conv_graph.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Mode = fe::PointwiseMode_t;

constexpr auto kFloat = fe::DataType_t::FLOAT;

// Engines with larger workspaces gain little speed and take memory that activations need. A fused one is to save memory
// traffic, which a large workspace is as well.
constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 30, kMaxFusedWorkspaceBytes = int64_t{1} << 26;

fe::DataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kFloat;
    case DType::bf16:
      return fe::DataType_t::BFLOAT16;
    case DType::f16:
      return fe::DataType_t::HALF;
    default:
      fail(ExitCode::config, "convolutions are not computed in {} on a GPU", dtype_name(dtype));
  }
}

std::vector<int64_t> dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

// Channels last.
std::vector<int64_t> strides(const Shape& s) { return {s[1] * s[2] * s[3], 1, s[1] * s[3], s[1]}; }

void finish_image(const Tensor& tensor, TensorId id, const Shape& shape) {
  tensor->set_output(true).set_uid(id).set_dim(dims(shape)).set_stride(strides(shape));
}

void finish_vector(const Tensor& tensor, TensorId id) { tensor->set_output(true).set_uid(id).set_data_type(kFloat); }

class Drawing {
 public:
  Drawing(fe::graph::Graph& graph, const ConvProblem& problem)
      : graph_(graph), p_(problem), type_(data_type(problem.dtype)) {
    graph.set_io_data_type(type_).set_intermediate_data_type(kFloat).set_compute_data_type(kFloat);
  }

  void forward() {
    const Tensor y = graph_.conv_fprop(x(), image(kWeights, p_.weights), windowed<fe::graph::Conv_fprop_attributes>());
    finish_image(y, kY, p_.y);
    if (p_.fusion == Fusion::none) return;
    y->set_data_type(type_);
    const auto [sum, squares] = graph_.genstats(y, fe::graph::Genstats_attributes());
    finish_vector(sum, kSum);
    finish_vector(squares, kSquares);
  }

  void grad_input() {
    const Tensor dx =
        graph_.conv_dgrad(image(kY, p_.y), image(kWeights, p_.weights), windowed<fe::graph::Conv_dgrad_attributes>());
    if (p_.fusion == Fusion::none) return finish_image(dx, kX, p_.x);
    norm_gradients(dx);
  }

  void grad_weights() {
    finish_image(graph_.conv_wgrad(image(kY, p_.y), x(), windowed<fe::graph::Conv_wgrad_attributes>()), kWeights,
                 p_.weights);
  }

 private:
  template <class Attributes>
  Attributes windowed() const {
    const Window& w = p_.window;
    return Attributes().set_padding({w.pad_h, w.pad_w}).set_stride({w.stride_h, w.stride_w}).set_dilation({1, 1});
  }

  Tensor image(TensorId id, const Shape& shape) {
    return graph_.tensor(fe::graph::Tensor_attributes().set_uid(id).set_dim(dims(shape)).set_stride(strides(shape)));
  }

  // One element a channel of x.
  Tensor vector(TensorId id, fe::DataType_t type) {
    const Tensor result = image(id, Shape{1, p_.x.c(), 1, 1});
    result->set_data_type(type);
    return result;
  }

  Tensor apply(Mode mode, const Tensor& a, const Tensor& b) {
    return graph_.pointwise(a, b, fe::graph::Pointwise_attributes().set_mode(mode));
  }

  // What the convolution reads: x, or relu(slope x + offset).
  Tensor x() {
    const Tensor plain = image(kX, p_.x);
    if (p_.fusion != Fusion::normalized_statistics && p_.fusion != Fusion::normalized_grad_weights) return plain;
    const Tensor shifted = apply(Mode::ADD, apply(Mode::MUL, plain, vector(kSlope, type_)), vector(kOffset, type_));
    const Tensor result = graph_.pointwise(shifted, fe::graph::Pointwise_attributes().set_mode(Mode::RELU_FWD));
    result->set_data_type(type_);
    return result;
  }

  void norm_gradients(const Tensor& dx) {
    dx->set_dim(dims(p_.x)).set_stride(strides(p_.x));
    const auto of_norm = [&](TensorId id) { return vector(id, kFloat); };
    const Tensor plain = image(kX, p_.x), mean = of_norm(kMean), inverse = of_norm(kInverseDeviation),
                 scale = of_norm(kScale);
    const Tensor scaled = apply(Mode::MUL, apply(Mode::MUL, apply(Mode::SUB, plain, mean), inverse), scale);
    const Tensor dz = apply(Mode::RELU_BWD, dx, apply(Mode::ADD, scaled, of_norm(kShift)));
    finish_image(dz, kGradient, p_.x);
    dz->set_data_type(type_);
    const auto [by_scale, by_shift, by_gradient, by_x, constant] =
        graph_.dbn_weight(dz, plain, mean, inverse, scale, fe::graph::DBN_weight_attributes());
    finish_vector(by_scale, kScaleGradient);
    finish_vector(by_shift, kShiftGradient);
    finish_vector(by_gradient, kByGradient);
    finish_vector(by_x, kByX);
    finish_vector(constant, kConstant);
  }

  fe::graph::Graph& graph_;
  const ConvProblem& p_;
  const fe::DataType_t type_;
};

}  // namespace

void draw(fe::graph::Graph& graph, const ConvProblem& problem) {
  Drawing drawing(graph, problem);
  switch (problem.kind) {
    case ConvKind::forward:
      return drawing.forward();
    case ConvKind::grad_input:
      return drawing.grad_input();
    case ConvKind::grad_weights:
      return drawing.grad_weights();
  }
}

bool EngineConditions::accept(const std::vector<fe::NumericalNote_t>& notes,
                              const std::vector<fe::BehaviorNote_t>& behavior, int64_t workspace_bytes) const {
  const auto is_unwanted = [](const auto& list) {
    return [&](auto note) { return std::ranges::find(list, note) != list.end(); };
  };
  return workspace_bytes <= most_workspace_bytes && std::ranges::none_of(notes, is_unwanted(unwanted)) &&
         std::ranges::none_of(behavior, is_unwanted(unwanted_behavior));
}

EngineConditions conditions_of(const ConvProblem& problem) {
  EngineConditions conditions{
      .unwanted = {fe::NumericalNote_t::NONDETERMINISTIC, fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION},
      .unwanted_behavior = {fe::BehaviorNote_t::RUNTIME_COMPILATION},
      .most_workspace_bytes = problem.fusion == Fusion::none ? kMaxWorkspaceBytes : kMaxFusedWorkspaceBytes,
      // In 16 bits, cuDNN's ranking puts others first for some first layers.
      .prefers_tensor_cores = problem.dtype != DType::f32};
  if (problem.dtype == DType::f32) {
    conditions.unwanted.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
    if (!problem.tf32) conditions.unwanted.push_back(fe::NumericalNote_t::TENSOR_CORE);
  }
  return conditions;
}

}  // namespace lockstep::cuda
