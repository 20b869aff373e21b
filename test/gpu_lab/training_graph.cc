#include "test/gpu_lab/training_graph.h"

#include "lockstep/base/error.h"
#include "lockstep/models/models.h"

namespace lockstep::lab {

DType Question::compute() const {
  if (precision == "bf16") return DType::bf16;
  if (precision == "fp16") return DType::f16;
  if (precision == "tf32" || precision == "float32") return DType::f32;
  fail(ExitCode::config, "precision {} is none of float32, tf32, bf16, fp16", precision);
}

Graph training_graph(const Question& question) {
  const bool small = question.model == "cifar10_cnn";
  const int64_t pixels = small ? 24 : question.model == "inception_v3" ? 299 : 224;
  return build_model(question.model, {.batch_size = question.batch,
                                      .image_size = pixels,
                                      .classes = small ? 10 : 1000,
                                      .training = true,
                                      .aux_weight = question.model == "inception_v3" ? 0.4 : 0,
                                      .dropout = 0.2,
                                      .label_smoothing = 0.1});
}

double operations_of(const Graph& graph, const Node& node) {
  const auto shape = [&](ValueId id) { return graph.value(id).desc.shape; };
  const auto convolution = [](const Shape& weights, const Shape& y) {
    return 2.0 * static_cast<double>(weights.elements()) * static_cast<double>(y.n() * y.h() * y.w());
  };
  return std::visit(
      Overload{[&](const Conv2d&) { return convolution(shape(node.inputs[1]), shape(node.outputs[0])); },
               [&](const Conv2dGradInput&) { return convolution(shape(node.inputs[1]), shape(node.inputs[0])); },
               [&](const Conv2dGradWeights&) { return convolution(shape(node.outputs[0]), shape(node.inputs[1])); },
               [](const auto&) { return 0.0; }},
      node.op);
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(ExitCode::internal, "{}: {}", what, cudaGetErrorString(status));
}

}  // namespace lockstep::lab
