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
  if (!op_name(node.op).starts_with("Conv2d")) return 0;
  return 2.0 * static_cast<double>(multiply_adds(node.op, graph.descs(node.inputs), graph.descs(node.outputs)));
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(ExitCode::internal, "{}: {}", what, cudaGetErrorString(status));
}

}  // namespace lockstep::lab
