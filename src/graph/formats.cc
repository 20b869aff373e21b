#include "graph/formats.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lockstep {
namespace {

bool must_end_plain(const Value& v) { return v.gradient_of >= 0 || v.moment_of >= 0 || v.kept; }

class FormatChooser {
 public:
  FormatChooser(Graph& graph, const Backend& backend) : graph_(graph), backend_(backend), readers_(readers_of(graph)) {}

  void run() {
    old_ = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : old_) place(std::move(node));
  }

 private:
  // Returns the value in `format` for readers in `phase`: the value itself, or a reordered copy that later readers
  // share. A packed copy of a parameter is not kept from forward to backward, because packing again costs less than the
  // memory.
  ValueId in_format(ValueId id, Format format, Phase phase) {
    const auto cast = weight_casts_.find(id);
    const bool of_cast = cast != weight_casts_.end();
    if (graph_.value(id).desc.format == format) {
      if (of_cast) {
        Node node = std::move(weight_casts_.extract(cast).mapped());
        node.phase = phase;
        graph_.append(std::move(node));
      }
      return id;
    }
    const bool transient = graph_.value(id).parameter >= 0 || of_cast;
    const auto key = std::tuple(id, static_cast<int>(format.kind), format.id, transient ? phase : Phase::forward);
    if (const auto found = copies_.find(key); found != copies_.end()) return found->second;
    const Op op = of_cast ? cast->second.op : Op(Reorder{});
    const ValueId from = of_cast ? cast->second.inputs[0] : id;
    const ValueId copy = graph_.add_node(graph_.value(id).name + ".reordered", op, {from}, phase).front();
    graph_.value(copy).desc.format = format;
    copies_.emplace(key, copy);
    return copy;
  }

  // What converts writes any of the backend's own formats: that in which the first reader wants the value. Others it
  // may lack: PreparePixels cannot write plain images.
  Format wanted(ValueId id, Format format) const {
    if (format.kind != Format::Kind::opaque || readers_[id].empty()) return format;
    const Node& reader = old_[readers_[id].front()];
    const auto input = std::ranges::find(reader.inputs, id) - reader.inputs.begin();
    const Format own =
        backend_.choose_formats(reader.op, graph_.descs(reader.inputs), graph_.descs(reader.outputs)).inputs[input];
    return own.kind == Format::Kind::opaque ? own : format;
  }

  void place(Node node) {
    auto inputs = graph_.descs(node.inputs);
    auto outputs = graph_.descs(node.outputs);
    FormatChoice choice = backend_.choose_formats(node.op, inputs, outputs);
    if (converts(node.op)) {
      for (size_t i = 0; i < node.outputs.size(); ++i) choice.outputs[i] = wanted(node.outputs[i], choice.outputs[i]);
    }
    if (casts_weights(node) && choice.outputs[0] == Format::plain()) {
      graph_.value(node.outputs[0]).producer = -1;
      weight_casts_.emplace(node.outputs[0], std::move(node));
      return;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      node.inputs[i] = in_format(node.inputs[i], choice.inputs[i], node.phase);
      inputs[i].format = choice.inputs[i];
    }
    if (const int saved = saved_output(node.op); saved >= 0) {
      const auto bytes = static_cast<int64_t>(backend_.saved_bytes(node.op, inputs));
      graph_.value(node.outputs[saved]).desc.shape = {bytes};
    }
    std::vector<std::pair<ValueId, ValueId>> unpack;  // value in the backend's format, and plain value
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (!(choice.outputs[i] == Format::plain()) && must_end_plain(graph_.value(id))) {
        Value packed{.name = graph_.value(id).name + ".packed", .desc = graph_.value(id).desc};
        packed.desc.format = choice.outputs[i];
        node.outputs[i] = graph_.add_value(std::move(packed));
        unpack.emplace_back(node.outputs[i], id);
      } else {
        graph_.value(id).desc.format = choice.outputs[i];
      }
    }
    graph_.append(std::move(node));
    for (const auto& [from, to] : unpack) {
      const Phase phase = graph_.nodes.back().phase;
      graph_.append({.name = graph_.value(to).name + ".unpack",
                     .op = Reorder{},
                     .inputs = {from},
                     .outputs = {to},
                     .phase = phase});
    }
  }

  bool casts_weights(const Node& node) const {
    return std::holds_alternative<Cast>(node.op) && graph_.value(node.inputs[0]).parameter >= 0 &&
           !graph_.value(node.outputs[0]).kept;
  }

  Graph& graph_;
  const Backend& backend_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<Node> old_;  // those placed are moved away
  std::map<std::tuple<ValueId, int, int32_t, Phase>, ValueId> copies_;
  std::map<ValueId, Node> weight_casts_;  // by output: each reader casts to the format that it needs
};

}  // namespace

void choose_formats(Graph& graph, const Backend& backend) { FormatChooser(graph, backend).run(); }

}  // namespace lockstep
