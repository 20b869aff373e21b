// Weights to exchange: of a small network, drawn from their positions.
#pragma once

#include <vector>

#include "lockstep/exchange/named_tensor.h"
#include "lockstep/models/models.h"

namespace lockstep::testing {

inline Graph small_graph(bool training = true) {
  return build_model("cifar10_cnn", {.batch_size = 2, .image_size = 8, .classes = 4, .training = training});
}

inline std::vector<NamedTensor> small_weights() {
  std::vector<NamedTensor> tensors;
  const Graph graph = small_graph();
  for (const Parameter& p : graph.parameters.all()) {
    NamedTensor& tensor = tensors.emplace_back();
    tensor = {p.name, p.shape, std::vector<float>(static_cast<size_t>(p.shape.elements()))};
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = static_cast<float>(i) + 0.25F * static_cast<float>(tensors.size());
    }
  }
  return tensors;
}

}  // namespace lockstep::testing
