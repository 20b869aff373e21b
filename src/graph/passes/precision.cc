#include <map>
#include <utility>

#include "graph/passes/rewrite.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class Lowering {
 public:
  Lowering(Graph& graph, DType compute) : graph_(graph), compute_(compute) {}

  int run() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : old) place(std::move(node));
    return static_cast<int>(casts_.size());
  }

 private:
  void place(Node node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const DType dtype = graph_.value(node.inputs[i]).desc.dtype;
      if (static_cast<int>(i) < lowered_inputs(node.op) && dtype == DType::f32)
        node.inputs[i] = cast(node.inputs[i], compute_);
    }
    if (std::holds_alternative<SoftmaxCrossEntropy>(node.op)) raise_logits(node);
    const auto outputs = infer(node.op, graph_.descs(node.inputs));
    for (size_t i = 0; i < outputs.size(); ++i) graph_.value(node.outputs[i]).desc.dtype = outputs[i].dtype;
    graph_.append(std::move(node));
  }

  // The loss is computed in float32, and callers read the logits in float32.
  void raise_logits(Node& loss) {
    const ValueId low = loss.inputs[0];
    if (graph_.value(low).desc.dtype == DType::f32) return;
    loss.inputs[0] = cast(low, DType::f32);
    graph_.value(loss.inputs[0]).kept = graph_.value(low).kept;
    graph_.value(low).kept = false;
    for (LossHead& head : graph_.losses) {
      if (head.logits == low) head.logits = loss.inputs[0];
    }
  }

  ValueId cast(ValueId value, DType to) {
    const auto [known, added] = casts_.try_emplace(std::pair(value, to), ValueId{-1});
    if (added) {
      std::string name = fmt::format("{}.{}", graph_.value(value).name, dtype_name(to));
      known->second = graph_.add_node(std::move(name), Cast{to}, {value}).front();
    }
    return known->second;
  }

  Graph& graph_;
  DType compute_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

}  // namespace

int lower_precision(Graph& graph, DType compute) {
  if (compute == DType::f32) return 0;
  require(compute == DType::bf16 || compute == DType::f16, "computing in {}", dtype_name(compute));
  if (compute == DType::f16) add_loss_scale(graph);
  return Lowering(graph, compute).run();
}

void add_loss_scale(Graph& graph) {
  graph.add_value({.name = "loss_scale",
                   .desc = {{}, DType::f32, Format::plain()},
                   .role = ValueRole::external,
                   .external = ExternalInput::loss_scale});
}

}  // namespace lockstep
