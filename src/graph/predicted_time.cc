#include "lockstep/graph/predicted_time.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

// Assumed rates, for which no engine or kernel was timed: shares of the rate of a copy and of the peak rate, and the
// tile of a product's channels.
constexpr double kShareOfCopy = 0.86, kShareOfPeak = 0.8, kGapSeconds = 1.2e-6;
constexpr int64_t kTile = 64;

double padding(int64_t channels) {
  return static_cast<double>((channels + kTile - 1) / kTile * kTile) / static_cast<double>(channels);
}

// A concatenation copies only the parts that are not in place already.
double copied_by_concat(const Graph& graph, const Node& node, const std::vector<double>& inputs) {
  double bytes = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (graph.value(node.inputs[i]).desc.parent_channels == 0) bytes += 2 * inputs[i];
  }
  return bytes;
}

}  // namespace

double assumed_peak(DType compute, bool tf32) { return compute != DType::f32 ? 650e12 : tf32 ? 325e12 : 60e12; }

DeviceRates assumed_rates(DType compute, bool tf32, double copied_bytes_per_second) {
  return {kShareOfCopy * copied_bytes_per_second, kShareOfPeak * assumed_peak(compute, tf32), kGapSeconds};
}

// Batch norms first compute sums and then the result, each over the whole image.
double node_bytes(const Executable& executable, const Backend& backend, size_t position) {
  const Graph& graph = executable.graph();
  const Node& node = graph.node(executable.schedule().order[position]);
  const auto bytes_of = [&](const std::vector<ValueId>& values) {
    std::vector<double> bytes;
    for (const ValueId v : values) bytes.push_back(static_cast<double>(backend.storage_bytes(graph.value(v).desc)));
    return bytes;
  };
  const std::vector<double> in = bytes_of(node.inputs), out = bytes_of(node.outputs);
  const double all = std::reduce(in.begin(), in.end()) + std::reduce(out.begin(), out.end());
  return std::visit(
      Overload{[&](const BatchNorm&) { return all + in[0]; },
               [&](const OneOf<BatchNormGrad, BatchNormInferenceGrad, BatchNormOfSumsGrad> auto&) {
                 return all + in[0] + in[1];
               },
               [&](const PreparePixels& op) { return all + (op.distort ? in[0] : 0); },
               [&](const BatchNormMaxPoolGrad& op) { return all + in[1] + (op.pooled_sums ? 0 : in[0] + in[6]); },
               [&](const Reshape&) { return 0.0; },
               [&](const Slice&) { return executable.kernel(position).implementation() == "view" ? 0.0 : 2 * out[0]; },
               [&](const Concat&) { return copied_by_concat(graph, node, in); }, [&](const auto&) { return all; }},
      node.op);
}

double node_seconds(const Executable& executable, const Backend& backend, size_t position, const DeviceRates& rates) {
  const Graph& graph = executable.graph();
  const Node& node = graph.node(executable.schedule().order[position]);
  const auto in = graph.descs(node.inputs), out = graph.descs(node.outputs);
  double operations = 2 * static_cast<double>(multiply_adds(node.op, in, out));
  if (operations > 0) {
    const bool by_weights = op_name(node.op).ends_with("GradWeights");
    const Shape weights = (by_weights ? out[0] : in[1]).shape;
    const bool by_input = op_name(node.op).find("GradInput") != std::string_view::npos;
    if (!by_input) operations *= padding(weights[0]);
    if (by_input || by_weights) operations *= padding(weights[1]);
  }
  return std::max(node_bytes(executable, backend, position) / rates.bytes_per_second,
                  operations / rates.operations_per_second);
}

}  // namespace lockstep
