#include <algorithm>

#include "graph/passes/rewrite.h"

namespace lockstep {
namespace {

class Aliaser {
 public:
  Aliaser(Graph& graph, const Backend& backend)
      : graph_(graph), backend_(backend), readers_(readers_of(graph)), whole_(graph.values.size(), false) {}

  int run() {
    for (const Node& node : graph_.nodes) {
      if (std::holds_alternative<Concat>(node.op)) alias_members(node);
      if (const auto* slice = std::get_if<Slice>(&node.op)) {
        if (may_be_slice(node.outputs[0], node)) make_view(node.outputs[0], node.inputs[0], slice->begin);
      }
    }
    return views_;
  }

 private:
  void alias_members(const Node& concat) {
    int64_t begin = 0;
    for (ValueId member : concat.inputs) {
      const bool once = std::ranges::count(concat.inputs, member) == 1;
      const NodeId maker = graph_.value(member).producer;
      const bool written =
          maker >= 0 && graph_.node(maker).outputs[0] == member && backend_.writes_slice(graph_.node(maker).op);
      if (once && written && may_be_slice(member, concat)) make_view(member, concat.outputs[0], begin);
      begin += graph_.value(member).desc.shape.c();
    }
  }

  // Returns whether all users of the value except `owner`, its Concat or Slice, can read it as a slice.
  bool may_be_slice(ValueId v, const Node& owner) const {
    const Value& value = graph_.value(v);
    if (value.role != ValueRole::computed || value.kept || value.gradient_of >= 0 || value.moment_of >= 0) return false;
    for (NodeId reader : readers_[v]) {
      const Node& node = graph_.node(reader);
      if (&node == &owner) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == v && !backend_.reads_slice(node.op, i)) return false;
      }
    }
    return true;
  }

  void make_view(ValueId part, ValueId whole, int64_t channel) {
    const Value& of = graph_.value(whole);
    Value& value = graph_.value(part);
    const bool fits = of.role == ValueRole::computed && of.gradient_of < 0 && of.moment_of < 0 && of.view_of < 0 &&
                      !whole_[part] && value.view_of < 0 && of.desc.format == value.desc.format &&
                      of.desc.format.kind != Format::Kind::opaque;
    if (!fits) return;
    value.view_of = whole;
    value.view_channel = channel;
    value.desc.parent_channels = of.desc.shape.c();
    whole_[whole] = true;
    ++views_;
  }

  Graph& graph_;
  const Backend& backend_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> whole_;  // by value: whether it has views
  int views_ = 0;
};

}  // namespace

int alias_concat(Graph& graph, const Backend& backend) { return Aliaser(graph, backend).run(); }

}  // namespace lockstep
