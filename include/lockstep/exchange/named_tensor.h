// Weights on their way between programs: names, shapes, values.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/graph/graph.h"
#include "lockstep/tensor/parameter_table.h"

namespace lockstep {

struct NamedTensor {
  std::string name;  // torchvision's state_dict name
  Shape shape;
  std::vector<float> values;  // row-major
};

// Puts `tensors` into the order of the table. Throws Error(config) that names `file` and what is missing, of another
// shape, or not the model's. Values are not read and may be absent.
std::vector<NamedTensor> arrange_by_table(std::vector<NamedTensor> tensors, const ParameterTable& table,
                                          const std::string& file);

// Removes the prefixes of PyTorch's wrappers (DataParallel's "module.", torch.compile's "_orig_mod.", a training
// script's "model.") if all names have them. Returns what was removed.
std::string strip_wrapper_prefixes(std::vector<NamedTensor>& tensors);

// Throws Error(numerics) that names `file` and the tensor when a value is NaN or infinite.
void require_finite(std::span<const NamedTensor> tensors, const std::string& file);

// Removes the first class, TensorFlow's "background", from the classifier of every head of the model: weights and
// biases of 1001 classes become those of 1000. Throws Error(config) when a classifier has only one class.
void drop_first_class(std::vector<NamedTensor>& tensors, const Graph& graph);

// Returns the parameters of the last linear layer or convolution of each head: weights, and bias if there is one; none
// for a head that adds or concatenates after that layer.
std::vector<ParameterId> classifier_parameters(const Graph& graph);

}  // namespace lockstep
