#include "lockstep/graph/moments.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

int64_t spatial_of(const Graph& graph, ValueId image) {
  const Shape& shape = graph.value(image).desc.shape;
  return shape.h() * shape.w();
}

struct Source {
  size_t output;  // index of the first moment, which the second follows
  int64_t spatial;
};

std::optional<Source> source_of(const Graph& graph, const Node& node) {
  return std::visit(Overload{[&](const BatchMoments&) -> std::optional<Source> {
                               const NodeId norm = graph.value(node.inputs[0]).producer;
                               return Source{0, spatial_of(graph, graph.node(norm).inputs[0])};
                             },
                             [&](const BatchNormStatistics&) -> std::optional<Source> {
                               return Source{6, spatial_of(graph, node.inputs[0])};
                             },
                             [&](const AvgPoolStatistics&) -> std::optional<Source> {
                               return Source{7, spatial_of(graph, node.outputs[0])};
                             },
                             [&](const BatchNormOfSums& op) -> std::optional<Source> {
                               return Source{6, op.values / op.samples};
                             },
                             [](const auto&) -> std::optional<Source> { return std::nullopt; }},
                    node.op);
}

}  // namespace

std::vector<NormMoments> moments_of(const Graph& graph) {
  std::vector<NormMoments> moments;
  for (const Node& node : graph.nodes) {
    const std::optional<Source> source = source_of(graph, node);
    if (!source) continue;
    const Value &first = graph.value(node.outputs[source->output]),
                &second = graph.value(node.outputs[source->output + 1]);
    moments.push_back({first.moment_of, second.moment_of, first.desc.shape.elements(), source->spatial});
  }
  const auto of_statistics =
      std::ranges::count_if(graph.values, [](const Value& v) { return v.moment_of >= 0 && v.producer >= 0; });
  require(of_statistics == 2 * std::ssize(moments), "{} moments of {} batch norms", of_statistics, moments.size());
  return moments;
}

}  // namespace lockstep
