#include "exchange/onnx_names.h"

#include <fmt/format.h>

#include <vector>

#include "lockstep/base/split_words.h"

namespace lockstep {
namespace {

constexpr size_t kLongestName = 200;

// "/layer1/layer1.0/conv1/Conv" is node Conv of module layer1.0.conv1. A part repeats the one before it if the module
// is an element of a list.
std::string module_of(std::string_view node) {
  if (!node.starts_with('/')) return std::string(node);
  std::vector<std::string_view> parts = split_words(node.substr(1), '/');
  if (parts.size() > 1) parts.pop_back();
  std::string module;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool repeated = i + 1 < parts.size() && parts[i + 1].size() > parts[i].size() &&
                          parts[i + 1].starts_with(parts[i]) && parts[i + 1][parts[i].size()] == '.';
    if (!repeated) module += fmt::format("{}{}", module.empty() ? "" : ".", parts[i]);
  }
  return module;
}

// Returns the text with only the characters that names of layers may have.
std::string as_name(std::string_view text) {
  std::string name;
  for (const char c : text.substr(0, kLongestName)) {
    const bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
    name += letter || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' ? c : '_';
  }
  return name.empty() ? "layer" : name;
}

// Returns the layer of weights with a name as in PyTorch; empty for other names.
std::string layer_of(std::string_view weight) {
  constexpr std::string_view kWeight = ".weight";
  if (weight.size() <= kWeight.size() || !weight.ends_with(kWeight)) return {};
  return as_name(weight.substr(0, weight.size() - kWeight.size()));
}

}  // namespace

OnnxNames::OnnxNames(const OnnxGraph& graph) : taken_{{"images", 1}} {
  for (const auto& [name, tensor] : graph.initializers) {
    const std::string layer = layer_of(name);
    if (!layer.empty() && ++taken_[layer] == 1) of_weights_.insert(layer);
  }
}

std::string OnnxNames::layer(const OnnxNode& node, std::string_view weight) {
  if (const std::string name = layer_of(weight); !name.empty()) {
    return of_weights_.erase(name) > 0 ? name : unused(name);
  }
  const std::string module = module_of(node.name);
  return unused(as_name(module.empty() && !node.outputs.empty() ? node.outputs[0] : module));
}

std::string OnnxNames::unused(const std::string& name) {
  int& count = taken_[name];
  if (++count == 1) return name;
  for (;; ++count) {
    const std::string numbered = fmt::format("{}_{}", name, count);
    if (taken_.emplace(numbered, 1).second) return numbered;
  }
}

}  // namespace lockstep
