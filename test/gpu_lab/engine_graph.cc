#include "test/gpu_lab/engine_graph.h"

#include <algorithm>

namespace lockstep::lab {
namespace {

namespace fe = cudnn_frontend;
using cuda::ConvKind;
using cuda::ConvProblem;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Mode = fe::PointwiseMode_t;

constexpr auto kFloat = fe::DataType_t::FLOAT;

std::vector<int64_t> dims(const Shape& s) { return {s.begin(), s.end()}; }
std::vector<int64_t> strides(const Shape& s) { return {s[1] * s[2] * s[3], 1, s[1] * s[3], s[1]}; }

void finish(const Tensor& tensor, int64_t id, const Shape& shape) {
  tensor->set_output(true).set_uid(id).set_dim(dims(shape)).set_stride(strides(shape));
}

void finish_vector(const Tensor& tensor, int64_t id) { tensor->set_output(true).set_uid(id).set_data_type(kFloat); }

template <class Attributes>
Attributes windowed(const ConvProblem& p) {
  const Window& w = p.window;
  return Attributes().set_padding({w.pad_h, w.pad_w}).set_stride({w.stride_h, w.stride_w}).set_dilation({1, 1});
}

}  // namespace

ConvKind kind_of(Fusion fusion) {
  if (fusion == Fusion::norm_gradients) return ConvKind::grad_input;
  return fusion == Fusion::normalized_grad_weights ? ConvKind::grad_weights : ConvKind::forward;
}

void EngineGraph::draw(const ConvProblem& p, Fusion fusion) {
  type_ = p.dtype == DType::f32 ? kFloat : p.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
  set_io_data_type(type_).set_intermediate_data_type(kFloat).set_compute_data_type(kFloat);
  const auto x = [&] {
    const Tensor plain = input(kX, p.x);
    const bool is_normalized = fusion == Fusion::normalized_statistics || fusion == Fusion::normalized_grad_weights;
    return is_normalized ? normalized(plain, p.x.c()) : plain;
  };
  switch (p.kind) {
    case ConvKind::forward: {
      const Tensor y = conv_fprop(x(), input(kWeights, p.weights), windowed<fe::graph::Conv_fprop_attributes>(p));
      finish(y, kY, p.y);
      y->set_data_type(type_);
      if (fusion != Fusion::none) draw_statistics(y);
      return;
    }
    case ConvKind::grad_input: {
      const Tensor dx =
          conv_dgrad(input(kY, p.y), input(kWeights, p.weights), windowed<fe::graph::Conv_dgrad_attributes>(p));
      if (fusion == Fusion::none) return finish(dx, kX, p.x);
      return draw_norm_gradients(p, dx);
    }
    case ConvKind::grad_weights:
      return finish(conv_wgrad(input(kY, p.y), x(), windowed<fe::graph::Conv_wgrad_attributes>(p)), kWeights,
                    p.weights);
  }
}

bool EngineGraph::find_engines(cudnnHandle_t handle) {
  return validate().is_good() && (handle ? build_operation_graph(handle) : build_operation_graph()).is_good() &&
         create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_good();
}

bool EngineGraph::has(int64_t engine, fe::NumericalNote_t note) const {
  const auto& notes = plans.numeric_notes.at(static_cast<size_t>(engine));
  return std::ranges::find(notes, note) != notes.end();
}

bool EngineGraph::compiles_at_run_time(int64_t engine) const {
  const auto& notes = plans.behavior_notes.at(static_cast<size_t>(engine));
  return std::ranges::find(notes, fe::BehaviorNote_t::RUNTIME_COMPILATION) != notes.end();
}

Tensor EngineGraph::input(int64_t id, const Shape& shape) {
  return tensor(fe::graph::Tensor_attributes().set_uid(id).set_dim(dims(shape)).set_stride(strides(shape)));
}

Tensor EngineGraph::vector(int64_t id, int64_t channels, fe::DataType_t type) {
  const Tensor result = input(id, Shape{1, channels, 1, 1});
  result->set_data_type(type);
  return result;
}

Tensor EngineGraph::apply(Mode mode, const Tensor& a, const Tensor& b) {
  return pointwise(a, b, fe::graph::Pointwise_attributes().set_mode(mode));
}

Tensor EngineGraph::normalized(const Tensor& x, int64_t channels) {
  const Tensor scaled = apply(Mode::MUL, x, vector(kSlope, channels, type_));
  const Tensor shifted = apply(Mode::ADD, scaled, vector(kOffset, channels, type_));
  const Tensor result = pointwise(shifted, fe::graph::Pointwise_attributes().set_mode(Mode::RELU_FWD));
  result->set_data_type(type_);
  return result;
}

void EngineGraph::draw_statistics(const Tensor& y) {
  const auto [sum, squares] = genstats(y, fe::graph::Genstats_attributes());
  finish_vector(sum, kSum);
  finish_vector(squares, kSquares);
}

void EngineGraph::draw_norm_gradients(const ConvProblem& p, const Tensor& dx) {
  dx->set_dim(dims(p.x)).set_stride(strides(p.x));
  const auto of_norm = [&](int64_t id) { return vector(id, p.x.c(), kFloat); };
  const Tensor x = input(kX, p.x), mean = of_norm(kMean), inverse = of_norm(kInverseDeviation), scale = of_norm(kScale);
  const Tensor centered = apply(Mode::SUB, x, mean);
  const Tensor scaled = apply(Mode::MUL, apply(Mode::MUL, centered, inverse), scale);
  const Tensor dz = apply(Mode::RELU_BWD, dx, apply(Mode::ADD, scaled, of_norm(kShift)));
  finish(dz, kGradient, p.x);
  dz->set_data_type(type_);
  const auto [by_scale, by_shift, by_gradient, by_x, constant] =
      dbn_weight(dz, x, mean, inverse, scale, fe::graph::DBN_weight_attributes());
  finish_vector(by_scale, kScaleGradient);
  finish_vector(by_shift, kShiftGradient);
  finish_vector(by_gradient, kByGradient);
  finish_vector(by_x, kByX);
  finish_vector(constant, kConstant);
}

}  // namespace lockstep::lab
