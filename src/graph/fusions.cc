#include "lockstep/graph/fusions.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

class Explainer {
 public:
  explicit Explainer(const Graph& graph) : graph_(graph), readers_(readers_of(graph)) {}

  ConvolutionFusion fusion_of(const Node& node) const {
    const auto* sums = std::get_if<Conv2dStatistics>(&node.op);
    ConvolutionFusion fusion{.layer = node.name, .sums = sums != nullptr, .normalizes = sums && sums->normalized};
    if (!fusion.sums) fusion.why_not = "does not sum: " + no_sums(node);
    if (fusion.sums && !fusion.normalizes) fusion.why_not = "does not normalize its image: " + not_normalized(node);
    return fusion;
  }

 private:
  // Returns the first node of this kind that reads a value, also through a slice or another format.
  template <class... Wanted>
  const Node* reader(ValueId v) const {
    for (const NodeId n : readers_[v]) {
      const Node& node = graph_.node(n);
      if ((std::holds_alternative<Wanted>(node.op) || ...)) return &node;
      if (std::holds_alternative<Slice>(node.op) || std::holds_alternative<Reorder>(node.op)) {
        if (const Node* const found = reader<Wanted...>(node.outputs[0])) return found;
      }
    }
    return nullptr;
  }

  std::string no_sums(const Node& node) const {
    if (const auto* conv = std::get_if<Conv2d>(&node.op); conv && (conv->bias || conv->groups != 1)) {
      return conv->bias ? "it has a bias" : "its channels are in groups";
    }
    const ValueId y = node.outputs[0];
    if (reader<SyncBatchNorm, SyncBatchNormSums>(y)) return "its norm is that of all ranks";
    if (!reader<BatchNorm, BatchNormStatistics>(y)) return "no batch norm reads it";
    return fmt::format("no engine for {} in {}", graph_.value(node.inputs[0]).desc.shape.to_string(),
                       dtype_name(graph_.value(node.inputs[0]).desc.dtype));
  }

  std::string not_normalized(const Node& node) const {
    const ValueId image = node.inputs[0];
    const NodeId maker = graph_.value(image).producer;
    const auto* norm = maker < 0 ? nullptr : std::get_if<BatchNormInference>(&graph_.node(maker).op);
    if (!norm || !norm->relu) return "no batch norm with ReLU makes it";
    const NodeId before = graph_.value(graph_.node(maker).inputs[0]).producer;
    if (before >= 0 && std::holds_alternative<Slice>(graph_.node(before).op)) {
      return "that is a slice of a merged convolution";
    }
    for (const NodeId n : readers_[image]) {
      const Node& other = graph_.node(n);
      if (!op_name(other.op).starts_with("Conv2d")) return other.name + " reads it as well";
    }
    return "no engine for it or for another reader";
  }

  const Graph& graph_;
  const std::vector<std::vector<NodeId>> readers_;
};

}  // namespace

std::vector<ConvolutionFusion> convolution_fusions(const Graph& graph) {
  const Explainer explainer(graph);
  std::vector<ConvolutionFusion> fusions;
  for (const Node& node : graph.nodes) {
    const bool convolution =
        std::holds_alternative<Conv2d>(node.op) || std::holds_alternative<Conv2dStatistics>(node.op);
    if (convolution && node.phase == Phase::forward) fusions.push_back(explainer.fusion_of(node));
  }
  return fusions;
}

}  // namespace lockstep
