// A network in an ONNX file: translated, and drawn for training.
#include <set>

#include "lockstep/exchange/onnx_import.h"
#include "lockstep/models/models.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {

void onnx(Bytes input) {
  expect_answer([&] {
    OnnxModel model = import_onnx(input, "/runs/net.onnx");
    size_t values = 0;
    std::set<std::string> given;
    for (const NamedTensor& weights : model.weights) {
      values += weights.values.size();
      require_law(static_cast<size_t>(weights.shape.elements()) == weights.values.size(), "weights fill their shape");
      require_law(given.insert(weights.name).second, "each parameter has weights of its own");
    }
    require_law(values * sizeof(float) <= 2 * input.size() + (1 << 20), "weights take what the file does");
    ModelBuilder builder({.batch_size = 2,
                          .image_size = 32,
                          .classes = 10,
                          .definition = std::move(model.definition),
                          .definition_path = "/runs/net.onnx"});
    build_model_file(builder);
    const Graph graph = std::move(builder).finish();
    for (const Parameter& p : graph.parameters.all()) {
      require_law(given.erase(p.name) == 1, "each parameter of the network has weights");
    }
    require_law(given.empty(), "all weights are of parameters");
  });
}

}  // namespace lockstep::fuzz
