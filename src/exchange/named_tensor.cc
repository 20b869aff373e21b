#include "lockstep/exchange/named_tensor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/misfit.h"

namespace lockstep {

std::vector<NamedTensor> arrange_by_table(std::vector<NamedTensor> tensors, const ParameterTable& table,
                                          const std::string& file) {
  std::map<std::string, NamedTensor> by_name;
  for (NamedTensor& tensor : tensors) by_name.insert_or_assign(tensor.name, std::move(tensor));
  std::vector<NamedTensor> arranged;
  Misfit misfit;
  for (const Parameter& parameter : table.all()) {
    auto found = by_name.extract(parameter.name);
    if (!found) {
      misfit.missing.push_back(fmt::format("{} is missing", parameter.name));
    } else if (found.mapped().shape != parameter.shape) {
      misfit.different.push_back(fmt::format("{} is {} in the file and {} in the model", parameter.name,
                                             found.mapped().shape.to_string(), parameter.shape.to_string()));
    } else {
      arranged.push_back(std::move(found.mapped()));
    }
  }
  for (const auto& [name, tensor] : by_name) {
    misfit.extra.push_back(fmt::format("{} is not the model's", printable(name)));
  }
  if (!misfit.none()) fail(ExitCode::config, "{}: does not fit the model: {}", file, misfit.text());
  return arranged;
}

std::string strip_wrapper_prefixes(std::vector<NamedTensor>& tensors) {
  constexpr std::string_view kWrappers[] = {"module.", "_orig_mod.", "model."};
  std::string stripped;
  const auto all_start_with = [&](std::string_view prefix) {
    return !tensors.empty() && std::ranges::all_of(tensors, [&](const NamedTensor& tensor) {
      return tensor.name.size() > prefix.size() && tensor.name.starts_with(prefix);
    });
  };
  for (;;) {
    const auto* const found = std::ranges::find_if(kWrappers, all_start_with);
    if (found == std::end(kWrappers)) return stripped;
    for (NamedTensor& tensor : tensors) tensor.name.erase(0, found->size());
    stripped += *found;
  }
}

void require_finite(std::span<const NamedTensor> tensors, const std::string& file) {
  for (const NamedTensor& tensor : tensors) {
    const auto bad = std::ranges::count_if(tensor.values, [](float value) { return !std::isfinite(value); });
    if (bad == 0) continue;
    fail(ExitCode::numerics,
         "{}: {} of the {} values of {} are not finite (NaN or infinite): nothing can be computed with them", file, bad,
         tensor.values.size(), printable(tensor.name));
  }
}

namespace {

// Whether there is one output for each input channel, computed from it.
bool keeps_channels(const Op& op) {
  return std::holds_alternative<Relu>(op) || std::holds_alternative<AvgPool>(op) ||
         std::holds_alternative<MaxPool>(op) || std::holds_alternative<Dropout>(op) ||
         std::holds_alternative<Reshape>(op);
}

}  // namespace

std::vector<ParameterId> classifier_parameters(const Graph& graph) {
  std::vector<ParameterId> found;
  for (const LossHead& head : graph.losses) {
    const Node* node = nullptr;
    for (ValueId value = head.logits; graph.value(value).producer >= 0; value = node->inputs[0]) {
      node = &graph.node(graph.value(value).producer);
      if (!keeps_channels(node->op)) break;
    }
    if (!node || !(std::holds_alternative<Linear>(node->op) || std::holds_alternative<Conv2d>(node->op))) continue;
    for (size_t i = 1; i < node->inputs.size(); ++i) found.push_back(graph.value(node->inputs[i]).parameter);
  }
  return found;
}

void drop_first_class(std::vector<NamedTensor>& tensors, const Graph& graph) {
  const std::vector<ParameterId> classifiers = classifier_parameters(graph);
  if (classifiers.empty()) fail(ExitCode::config, "the model has no classifier of which a class could be dropped");
  for (const ParameterId id : classifiers) {
    const std::string& name = graph.parameters[id].name;
    const auto tensor = std::ranges::find(tensors, name, &NamedTensor::name);
    if (tensor == tensors.end()) continue;  // reported when the tensors are arranged
    if (tensor->shape.rank() == 0 || tensor->shape[0] < 2) {
      fail(ExitCode::config, "{} is {}: there is no class to drop", name, tensor->shape.to_string());
    }
    const auto row = static_cast<std::ptrdiff_t>(tensor->values.size()) / tensor->shape[0];  // 0 without values
    tensor->values.erase(tensor->values.begin(), tensor->values.begin() + row);
    --tensor->shape[0];
  }
}

}  // namespace lockstep
