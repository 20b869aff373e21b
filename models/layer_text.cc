#include "models/layer_text.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/nearest_word.h"

namespace lockstep {
namespace {

constexpr int64_t kLargestKernel = 1024;

}  // namespace

void LayerText::check_keys(const std::vector<std::string>& known) const {
  for (const auto& [key, node] : table) {
    if (std::ranges::find(known, key.str()) == known.end()) {
      refuse("unknown key {}{}", printable(key.str()), did_you_mean(key.str(), known));
    }
  }
}

const toml::node* LayerText::find(std::string_view key) const {
  const toml::node* node = table.get(key);
  const auto* text = node ? node->as_string() : nullptr;
  if (!text || !text->get().starts_with('$')) return node;
  const std::string_view wanted = std::string_view(text->get()).substr(1);
  const toml::node* value = globals.get(wanted);
  if (!value && scope.arguments) value = scope.arguments->get(wanted);
  if (value) return value;
  refuse("{} = \"${}\": {}", key, printable(wanted),
         scope.arguments ? fmt::format("line {}, which uses this block, does not give it", line_of(*scope.arguments))
                         : "outside a block there is only $classes");
}

int64_t LayerText::to_integer(std::string_view key, const toml::node& node, int64_t low, int64_t high) const {
  const auto* value = node.as_integer();
  if (!value || value->get() < low || value->get() > high) refuse("{} is an integer from {} to {}", key, low, high);
  return value->get();
}

int64_t LayerText::integer(std::string_view key, int64_t low, int64_t high) const {
  const toml::node* node = find(key);
  if (!node) refuse("it needs {}", key);
  return to_integer(key, *node, low, high);
}

double LayerText::number(std::string_view key, double otherwise) const {
  const toml::node* node = find(key);
  if (!node) return otherwise;
  const double value = node->is_number() ? *node->value<double>() : NAN;
  if (!std::isfinite(value)) refuse("{} is a finite number", key);
  return value;
}

bool LayerText::flag(std::string_view key, bool otherwise) const {
  const toml::node* node = find(key);
  if (node && !node->is_boolean()) refuse("{} is true or false", key);
  return node ? node->as_boolean()->get() : otherwise;
}

bool LayerText::only_training() const {
  const toml::node* node = table.get("only");
  if (node && node->value<std::string_view>() != "training") refuse("only is \"training\", or not given");
  return node || scope.only_training;
}

std::pair<int64_t, int64_t> LayerText::extent(std::string_view key, int64_t low,
                                              std::optional<int64_t> otherwise) const {
  const toml::node* node = find(key);
  if (!node && !otherwise) refuse("it needs {}", key);
  if (!node) return {*otherwise, *otherwise};
  const toml::array* two = node->as_array();
  if (two && two->size() != 2) refuse("{} is a number or [height, width]", key);
  return {to_integer(key, two ? *two->get(0) : *node, low, kLargestKernel),
          to_integer(key, two ? *two->get(1) : *node, low, kLargestKernel)};
}

Window LayerText::window(std::optional<int64_t> kernel) const {
  const auto [kernel_h, kernel_w] = extent("kernel", 1, kernel);
  const auto [stride_h, stride_w] = extent("stride", 1, 1);
  const auto [pad_h, pad_w] = extent("pad", 0, 0);
  if (pad_h >= kernel_h || pad_w >= kernel_w) refuse("pad must be smaller than kernel");
  return {kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w};
}

double LayerText::deviation(int64_t fan_in, int64_t fan_out) const {
  const toml::node* node = find("deviation");
  const auto* text = node ? node->as_string() : nullptr;
  if (!node || (text && text->get() == "fan_in")) return std::sqrt(2.0 / static_cast<double>(fan_in));
  if (text && text->get() == "fan_out") return std::sqrt(2.0 / static_cast<double>(fan_out));
  const double value = node->is_number() ? *node->value<double>() : NAN;
  if (!std::isfinite(value) || value < 0) refuse("deviation is a number of 0 or more, \"fan_in\" or \"fan_out\"");
  return value;
}

}  // namespace lockstep
