// A model as data: values and the nodes that make them, in topological order by construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/ops/ops.h"
#include "lockstep/tensor/parameter_table.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

using ValueId = int32_t;
using NodeId = int32_t;

// The inputs of the graph in each step; the caller binds a pointer to each that it reads (Arenas::external).
enum class ExternalInput : uint8_t {
  images,      // [N,3,H,W], plain
  labels,      // i32[N]
  weights,     // [N]: 1, or 0 for padding
  step,        // i32[4]: see Dropout
  loss_scale,  // f32[]: multiplies all gradients (graphs with f16 values only)
  ids,         // i32[N,L]: see EmbeddingBag
  values,      // [N,L]
  pixels,      // u8[N,H,W,3], instead of images, like the next: see PreparePixels
  changes,     // [N,kImageChanges]
};

enum class ValueRole : uint8_t {
  computed,   // made by a node
  parameter,  // in the parameter arena
  statistic,  // in the statistics arena
  external,   // bound by the caller
};

struct Value {
  std::string name;
  TensorDesc desc;
  ValueRole role = ValueRole::computed;
  ExternalInput external = ExternalInput::images;  // role external
  // Roles parameter and statistic. If the value has more elements than this parameter, it continues with the next ones
  // of its group (Graph::adjacent_parameters), and so does its gradient.
  ParameterId parameter = -1;
  ParameterId gradient_of = -1;  // computed: is the gradient of this parameter, in the gradient arena
  ParameterId moment_of = -1;    // computed: is the summed moment of this statistic, in the gradient arena
  ParameterId copy_of = -1;      // computed: is this parameter in 16 bits, in the arena of copies
  NodeId producer = -1;          // computed
  bool kept = false;             // read by the caller after the run, so its memory is not reused
  ValueId view_of = -1;          // computed: is in the memory of this value, from its channel `view_channel` on
  int64_t view_channel = 0;
};

// `weights` runs whenever parameters have changed other than by an update, which writes the copies itself
// (ApplyOptimizer::copies).
enum class Phase : uint8_t { weights, forward, backward };

struct Node {
  std::string name;
  Op op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Phase phase = Phase::forward;
};

// One head of the model; the trained loss is the sum over heads of weight * loss.
struct LossHead {
  std::string name;
  double weight = 1;
  ValueId logits = -1, loss = -1, correct = -1, probabilities = -1;
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  ParameterTable parameters;
  // Groups of parameters that must be adjacent in memory (see lay_out_parameters).
  std::vector<std::vector<ParameterId>> adjacent_parameters;
  std::vector<LossHead> losses;  // the first is the main head

  Value& value(ValueId id) { return values[id]; }
  const Value& value(ValueId id) const { return values[id]; }
  Node& node(NodeId id) { return nodes[id]; }
  const Node& node(NodeId id) const { return nodes[id]; }

  ValueId add_value(Value value);
  // Appends a node whose output values exist already.
  void append(Node node);
  // Lets a node make another value instead of this output, which is unused from then on.
  void replace_output(NodeId id, size_t output, ValueId by);
  // Appends a node, infers its outputs and names them after it. Errors name the node. Returns its outputs.
  std::vector<ValueId> add_node(std::string name, Op op, std::vector<ValueId> inputs, Phase phase = Phase::forward);

  std::vector<TensorDesc> descs(const std::vector<ValueId>& ids) const;
};

// Returns the parameters that a value of this shape holds, which starts with parameter `first`.
std::vector<ParameterId> parameters_in(const Graph& graph, ParameterId first, const Shape& shape);

// Returns for every value the nodes that read it, in order.
std::vector<std::vector<NodeId>> readers_of(const Graph& graph);

// Drops the nodes marked in `dead` and renumbers producers; values stay (unread ones cost nothing).
void remove_nodes(Graph& graph, const std::vector<bool>& dead);

}  // namespace lockstep
