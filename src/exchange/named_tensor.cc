#include "lockstep/exchange/named_tensor.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"

namespace lockstep {

std::vector<NamedTensor> arrange_by_table(std::vector<NamedTensor> tensors, const ParameterTable& table,
                                          const std::string& file) {
  std::map<std::string, NamedTensor> by_name;
  for (NamedTensor& tensor : tensors) by_name.insert_or_assign(tensor.name, std::move(tensor));
  std::vector<NamedTensor> arranged;
  std::vector<std::string> problems;
  for (const Parameter& parameter : table.all()) {
    auto found = by_name.extract(parameter.name);
    if (!found) {
      problems.push_back(fmt::format("{} is missing", parameter.name));
    } else if (found.mapped().shape != parameter.shape) {
      problems.push_back(fmt::format("{} is {} in the file and {} in the model", parameter.name,
                                     found.mapped().shape.to_string(), parameter.shape.to_string()));
    } else {
      arranged.push_back(std::move(found.mapped()));
    }
  }
  for (const auto& [name, tensor] : by_name) problems.push_back(fmt::format("{} is not the model's", name));
  if (!problems.empty()) {
    constexpr size_t kShown = 10;
    const size_t shown = std::min(problems.size(), kShown);
    fail(ExitCode::config, "{}: does not fit the model: {}{}", file,
         fmt::join(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(shown), "; "),
         problems.size() > shown ? fmt::format("; and {} more", problems.size() - shown) : std::string());
  }
  return arranged;
}

std::vector<ParameterId> classifier_parameters(const Graph& graph) {
  std::vector<ParameterId> found;
  for (const LossHead& head : graph.losses) {
    const NodeId producer = graph.value(head.logits).producer;
    require(producer >= 0 && std::holds_alternative<Linear>(graph.node(producer).op),
            "the logits of {} are not a linear layer's", head.name);
    const std::vector<ValueId>& inputs = graph.node(producer).inputs;
    found.insert(found.end(), {graph.value(inputs[1]).parameter, graph.value(inputs[2]).parameter});
  }
  return found;
}

void drop_first_class(std::vector<NamedTensor>& tensors, const Graph& graph) {
  for (const ParameterId id : classifier_parameters(graph)) {
    const std::string& name = graph.parameters[id].name;
    const auto tensor = std::ranges::find(tensors, name, &NamedTensor::name);
    if (tensor == tensors.end()) continue;  // said when the tensors are arranged
    if (tensor->shape.rank() == 0 || tensor->shape[0] < 2) {
      fail(ExitCode::config, "{} is {}: there is no class to drop", name, tensor->shape.to_string());
    }
    const auto row = static_cast<std::ptrdiff_t>(tensor->values.size()) / tensor->shape[0];
    tensor->values.erase(tensor->values.begin(), tensor->values.begin() + row);
    --tensor->shape[0];
  }
}

}  // namespace lockstep
