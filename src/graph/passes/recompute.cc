#include <map>
#include <set>

#include "graph/passes/rewrite.h"

namespace lockstep {
namespace {

// The most multiply-adds for each value that a convolution computes twice: those of 3x3 kernels over 32 channels.
constexpr int64_t kCheap = 288;

class Recomputer {
 public:
  Recomputer(Graph& graph, bool convolutions)
      : graph_(graph), convolutions_(convolutions), makers_(graph.values.size()) {}

  int run() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (const Node& node : old) {
      if (node.phase == Phase::forward) {
        for (ValueId output : node.outputs) makers_[output] = &node;
      } else if (std::holds_alternative<BatchNormInferenceGrad>(node.op)) {
        differentiated_.insert(node.inputs[0]);
      }
    }
    for (Node node : old) {  // a copy: makers_ points to the originals
      if (node.phase == Phase::backward) {
        for (ValueId& input : node.inputs) input = again(input);
      }
      graph_.append(std::move(node));
    }
    return nodes_;
  }

 private:
  // Returns the value to read instead of `v` in the backward pass, and appends the nodes that compute it.
  ValueId again(ValueId v) {
    if (static_cast<size_t>(v) >= makers_.size()) return v;
    const Node* maker = makers_[v];
    if (!maker || maker->outputs[0] != v || graph_.value(v).kept) return v;
    if (const auto found = copies_.find(v); found != copies_.end()) return found->second;
    ValueId copy = v;
    if (const auto* norm = std::get_if<BatchNorm>(&maker->op)) {
      copy = norm_again(*maker, {norm->epsilon, norm->relu}, maker->outputs[1], maker->outputs[2]);
    }
    if (const auto* norm = std::get_if<BatchNormInference>(&maker->op);
        norm && differentiated_.contains(maker->inputs[0])) {
      copy = norm_again(*maker, *norm, maker->inputs[3], maker->inputs[4]);
    }
    if (std::holds_alternative<Concat>(maker->op)) copy = concat_again(*maker);
    if (pools_slice(*maker) || is_cheap(*maker)) copy = node_again(*maker);
    nodes_ += copy != v ? 1 : 0;
    copies_.emplace(v, copy);
    return copy;
  }

  // This pool follows a convolution that hoist_pointwise moved in front of it and merge_siblings merged with others,
  // whose batch norms keep the input of the pool.
  bool pools_slice(const Node& node) const {
    if (!std::holds_alternative<AvgPool>(node.op)) return false;
    const ValueId x = node.inputs[0];
    const Node* maker = makers_[x];
    return maker && std::holds_alternative<Slice>(maker->op) &&
           graph_.value(x).desc.shape == graph_.value(node.outputs[0]).desc.shape;
  }

  bool is_cheap(const Node& node) const {
    if (!convolutions_ || !std::holds_alternative<Conv2d>(node.op)) return false;
    const int64_t values = graph_.value(node.outputs[0]).desc.shape.elements();
    return multiply_adds(node.op, graph_.descs(node.inputs), graph_.descs(node.outputs)) <= kCheap * values;
  }

  ValueId node_again(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(again(input));
    return graph_.add_node(node.name + ".again", node.op, std::move(inputs), Phase::backward).front();
  }

  ValueId norm_again(const Node& node, const BatchNormInference& norm, ValueId mean, ValueId var) {
    const ValueId x = again(node.inputs[0]);
    const std::vector<ValueId> inputs{x, node.inputs[1], node.inputs[2], mean, var};
    return graph_.add_node(node.name + ".again", norm, inputs, Phase::backward).front();
  }

  ValueId concat_again(const Node& node) {
    std::vector<ValueId> members;
    for (ValueId member : node.inputs) members.push_back(again(member));
    if (members == node.inputs) return node.outputs[0];
    return graph_.add_node(node.name + ".again", Concat{}, std::move(members), Phase::backward).front();
  }

  Graph& graph_;
  bool convolutions_;
  std::vector<const Node*> makers_;   // by value of the original graph: the forward node that computes it
  std::set<ValueId> differentiated_;  // inputs of batch norms with running statistics that backward nodes read
  std::map<ValueId, ValueId> copies_;
  int nodes_ = 0;
};

}  // namespace

int recompute(Graph& graph, bool convolutions) { return Recomputer(graph, convolutions).run(); }

}  // namespace lockstep
