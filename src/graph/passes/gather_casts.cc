#include <utility>

#include "graph/passes/rewrite.h"

namespace lockstep {
namespace {

// How many a kernel takes, and how many elements of gradients it waits for.
constexpr size_t kMostCasts = 40;
constexpr int64_t kMostGradientElements = int64_t{6} << 20;  // 24 MiB of float32: a bucket of the reduction

class Gatherer {
 public:
  explicit Gatherer(Graph& graph) : graph_(graph) {}

  int run() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : old) {
      if (!reads_parameter(node)) continue;
      graph_.value(node.outputs[0]).copy_of = graph_.value(node.inputs[0]).parameter;
      node.phase = Phase::weights;
      gather(parameters_, node);
    }
    flush(parameters_);
    for (Node& node : old) {
      if (node.outputs.empty()) continue;  // taken
      if (!makes_gradient(node)) {
        graph_.append(std::move(node));
        continue;
      }
      const int64_t elements = graph_.value(node.outputs[0]).desc.shape.elements();
      gather(gradients_, node);
      elements_ += elements;
      if (elements_ >= kMostGradientElements) flush(gradients_);
    }
    flush(gradients_);
    return gathered_;
  }

 private:
  bool reads_parameter(const Node& node) const {
    return std::holds_alternative<Cast>(node.op) && node.phase == Phase::forward &&
           graph_.value(node.inputs[0]).role == ValueRole::parameter;
  }
  bool makes_gradient(const Node& node) const {
    return std::holds_alternative<Cast>(node.op) && node.phase == Phase::backward &&
           graph_.value(node.outputs[0]).gradient_of >= 0;
  }

  // Takes the node away.
  void gather(std::vector<Node>& casts, Node& node) {
    const auto alike = [&](const Node& other) {
      return graph_.value(other.inputs[0]).desc.dtype == graph_.value(node.inputs[0]).desc.dtype &&
             std::get<Cast>(other.op).to == std::get<Cast>(node.op).to;
    };
    if (!casts.empty() && (casts.size() == kMostCasts || !alike(casts.front()))) flush(casts);
    casts.push_back(std::exchange(node, {}));
  }

  void flush(std::vector<Node>& casts) {
    elements_ = 0;
    if (casts.empty()) return;
    Node all = std::move(casts.front());
    if (casts.size() > 1) {
      all.op = CastMany{std::get<Cast>(all.op).to};
      for (size_t i = 1; i < casts.size(); ++i) {
        all.inputs.push_back(casts[i].inputs[0]);
        all.outputs.push_back(casts[i].outputs[0]);
      }
      gathered_ += static_cast<int>(casts.size());
    }
    casts.clear();
    graph_.append(std::move(all));
  }

  Graph& graph_;
  std::vector<Node> parameters_, gradients_;
  int64_t elements_ = 0;
  int gathered_ = 0;
};

}  // namespace

int gather_casts(Graph& graph, const Backend& backend) {
  const TensorDesc low{{1}, DType::f16, Format::plain()}, high{{1}, DType::f32, Format::plain()};
  return backend.can(CastMany{}, {&low, 1}, {&high, 1}) ? Gatherer(graph).run() : 0;
}

}  // namespace lockstep
