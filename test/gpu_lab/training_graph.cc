#include "test/gpu_lab/training_graph.h"

#include "lockstep/base/error.h"
#include "lockstep/models/models.h"
#include "test/models/recipe_options.h"

namespace lockstep::lab {

DType Question::compute() const {
  if (precision == "bf16") return DType::bf16;
  if (precision == "fp16") return DType::f16;
  if (precision == "tf32" || precision == "float32") return DType::f32;
  fail(ExitCode::config, "precision {} is none of float32, tf32, bf16, fp16", precision);
}

Graph training_graph(const Question& question) {
  return build_model(question.model, test::recipe_options(question.model, question.batch));
}

CompileOptions compile_options(const Question& question, const Backend& backend) {
  CompileOptions options{.training = true, .compute = question.compute()};
  if (!backend.host_addressable()) options.pixels = test::recipe_pixels(question.model);
  return options;
}

double operations_of(const Graph& graph, const Node& node) {
  if (!op_name(node.op).starts_with("Conv2d")) return 0;
  return 2.0 * static_cast<double>(multiply_adds(node.op, graph.descs(node.inputs), graph.descs(node.outputs)));
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(ExitCode::internal, "{}: {}", what, cudaGetErrorString(status));
}

}  // namespace lockstep::lab
