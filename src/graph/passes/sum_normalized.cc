#include <algorithm>
#include <map>

#include "graph/passes/rewrite.h"

namespace lockstep {
namespace {

// A batch norm with ReLU whose gradient sums over its image: BatchNormInference and BatchNormOfSumsGrad, or before a
// max pool BatchNormMaxPoolGrad alone.
struct Norm {
  NodeId apply = -1, grad = -1;
};

// The batch norms that one gradient reaches, in the order of their channels, which begin at `begin`.
struct Joint {
  std::vector<Norm> norms;
  int64_t begin = 0;
  ValueId y = -1, shift = -1, scale = -1;  // of all of them
  ValueId by_y = -1, constant = -1;
  bool by_convolution = false, by_pool = false;
};

class Summer {
 public:
  Summer(Graph& graph, const Backend& backend) : graph_(graph), backend_(backend), readers_(readers_of(graph)) {}

  int run() {
    std::map<ValueId, NodeId> applies;  // by mean
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      const Node& node = graph_.node(n);
      const auto* apply = std::get_if<BatchNormInference>(&node.op);
      if (apply && apply->relu && fixed(node.inputs[1]) && node.phase == Phase::forward) applies[node.inputs[3]] = n;
      if (const auto* pool = std::get_if<BatchNormMaxPoolGrad>(&node.op); pool && pool->pooled_sums) find_pool(n);
      if (!std::holds_alternative<BatchNormOfSumsGrad>(node.op)) continue;
      if (const auto found = applies.find(node.inputs[3]); found != applies.end()) norms_[n] = {found->second, n};
    }
    for (const auto& [grad, norm] : norms_) find(norm);
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (NodeId n = 0; n < static_cast<NodeId>(old.size()); ++n) rebuild(n, old);
    return static_cast<int>(joint_of_.size());
  }

 private:
  bool fixed(ValueId scale) const {
    const ParameterId id = graph_.value(scale).parameter;
    return id >= 0 && graph_.parameters[id].kind == ParameterKind::fixed_scale;
  }
  ValueId y_of(const Norm& norm) const { return graph_.node(norm.apply).outputs[0]; }

  void find_pool(NodeId n) {
    const std::vector<ValueId>& inputs = graph_.node(n).inputs;
    const ValueId dy = inputs[1], y = inputs[7];
    const Node& vectors = graph_.node(graph_.value(inputs[3]).producer);
    const ValueId scale = vectors.inputs[std::holds_alternative<BatchNormOfSums>(vectors.op) ? 2 : 1];
    if (!fixed(scale) || readers_[dy].size() != 1 || concatenated(y)) return;
    Joint joint{.norms = {{.grad = n}}, .y = y, .shift = inputs[2], .scale = scale};
    if (convolution_can(graph_.value(dy).producer, joint)) add(dy, std::move(joint));
  }

  // A convolution that sums wants what it reads whole.
  bool concatenated(ValueId v) const {
    return std::ranges::any_of(readers_[v],
                               [&](NodeId n) { return std::holds_alternative<Concat>(graph_.node(n).op); });
  }

  void find(const Norm& norm) {
    const ValueId dy = graph_.node(norm.grad).inputs[1];
    const NodeId maker = graph_.value(dy).producer;
    if (maker < 0) return;
    if (std::holds_alternative<Slice>(graph_.node(maker).op)) {
      const ValueId whole = graph_.node(maker).inputs[0];
      if (!joints_.contains(whole)) find_concatenation(whole);
    } else if (readers_[dy].size() == 1) {
      if (concatenated(y_of(norm))) return;
      const std::vector<ValueId>& inputs = graph_.node(norm.apply).inputs;
      Joint joint{.norms = {norm}, .y = y_of(norm), .shift = inputs[2], .scale = inputs[1]};
      if (convolution_can(maker, joint)) add(dy, std::move(joint));
    }
  }

  // `dy`: a value that slices cut up.
  void find_concatenation(ValueId dy) {
    Joint joint;
    for (const NodeId reader : readers_[dy]) {  // in the order of the channels
      const auto* slice = std::get_if<Slice>(&graph_.node(reader).op);
      if (!slice) return;
      const std::vector<NodeId>& users = readers_[graph_.node(reader).outputs[0]];
      const auto norm = users.size() == 1 ? norms_.find(users[0]) : norms_.end();
      if (norm == norms_.end() && !joint.norms.empty()) break;
      if (norm == norms_.end()) continue;
      if (joint.norms.empty()) joint.begin = slice->begin;
      joint.norms.push_back(norm->second);
    }
    if (joint.norms.size() < 2) return;
    joint.y = concatenation_of(joint);
    if (joint.y < 0 || !may_stack(joint.norms, 1) || !may_stack(joint.norms, 2)) return;
    joint.scale = stack(joint.norms, 1);
    joint.shift = stack(joint.norms, 2);
    auto in = graph_.descs({joint.y, dy, joint.shift});
    const bool whole = in[0].shape.c() == in[2].shape[0];
    in[0].shape[1] = in[1].shape[1] = in[2].shape[0];
    const NodeId maker = graph_.value(dy).producer;
    const bool can = (whole && (convolution_can(maker, joint) || pool_can(maker, joint))) ||
                     backend_.can(BatchNormGradSums{}, in, infer(BatchNormGradSums{}, in));
    if (!can) return;
    for (size_t vector : {1, 2}) graph_.adjacent_parameters.push_back(parameters_of(joint.norms, vector));
    add(dy, std::move(joint));
  }

  // The concatenation in which what these norms make stands side by side, from channel `begin` on, or -1.
  ValueId concatenation_of(const Joint& joint) const {
    for (const NodeId reader : readers_[y_of(joint.norms[0])]) {
      const Node& node = graph_.node(reader);
      if (!std::holds_alternative<Concat>(node.op)) continue;
      size_t found = 0;
      int64_t channel = 0;
      for (const ValueId member : node.inputs) {
        const bool next = found < joint.norms.size() && member == y_of(joint.norms[found]);
        found += next && (found > 0 || channel == joint.begin) ? 1 : 0;
        if (found > 0 && found < joint.norms.size() && !next) break;
        channel += graph_.value(member).desc.shape.c();
      }
      if (found == joint.norms.size()) return node.outputs[0];
    }
    return -1;
  }

  // Of input `vector` of the norms, which is a parameter.
  std::vector<ParameterId> parameters_of(const std::vector<Norm>& norms, size_t vector) const {
    std::vector<ParameterId> ids;
    for (const Norm& norm : norms) ids.push_back(graph_.value(graph_.node(norm.apply).inputs[vector]).parameter);
    return ids;
  }

  // Whether they can become adjacent: all or none are trained, and packs of 16 bytes begin with each.
  bool may_stack(const std::vector<Norm>& norms, size_t vector) const {
    constexpr int64_t kPack = 16;
    const std::vector<ParameterId> ids = parameters_of(norms, vector);
    return std::ranges::all_of(ids, [&](ParameterId id) {
      return id >= 0 && graph_.parameters[id].trained() == (vector == 2) &&
             graph_.parameters[id].shape.elements() % kPack == 0;
    });
  }

  ValueId stack(const std::vector<Norm>& norms, size_t vector) {
    Value stacked = graph_.value(graph_.node(norms[0].apply).inputs[vector]);
    stacked.desc.shape[0] = 0;
    for (const ParameterId id : parameters_of(norms, vector)) {
      stacked.desc.shape[0] += graph_.parameters[id].shape.elements();
    }
    stacked.name += ".stacked";
    return graph_.add_value(std::move(stacked));
  }

  // Sets Joint::by_convolution if it can.
  bool convolution_can(NodeId maker, Joint& joint) const {
    const auto* conv = std::get_if<Conv2dGradInput>(&graph_.node(maker).op);
    if (!conv || conv->groups != 1) return false;
    const auto in = graph_.descs(inputs_of(graph_.node(maker), joint));
    const Conv2dGradInputNorm op{conv->window, conv->input};
    joint.by_convolution = backend_.can(op, in, infer(op, in));
    return joint.by_convolution;
  }

  // Sets Joint::by_pool if it can.
  bool pool_can(NodeId maker, Joint& joint) const {
    const auto* pool = std::get_if<MaxPoolGradSum>(&graph_.node(maker).op);
    if (!pool) return false;
    const auto in = graph_.descs(pool_inputs(graph_.node(maker), joint));
    const MaxPoolGradNormSums op{pool->window, pool->input};
    joint.by_pool = backend_.can(op, in, infer(op, in));
    return joint.by_pool;
  }

  static std::vector<ValueId> pool_inputs(const Node& pool, const Joint& joint) {
    std::vector<ValueId> inputs = pool.inputs;
    inputs.insert(inputs.begin() + 2, {joint.y, joint.shift});
    return inputs;
  }

  // Conv2dGradInputNorm at y: with a scale of 1 it normalizes y with the shift as mean, and leaves y.
  static std::vector<ValueId> inputs_of(const Node& conv, const Joint& joint) {
    return {conv.inputs[0], conv.inputs[1], joint.y, joint.scale, joint.shift, joint.shift, joint.scale};
  }

  void add(ValueId dy, Joint joint) {
    for (const Norm& norm : joint.norms) joint_of_[norm.grad] = dy;
    joints_[dy] = std::move(joint);
  }

  void rebuild(NodeId n, std::vector<Node>& old) {
    Node& node = old[n];
    const auto found = joints_.find(node.outputs[0]);
    if (found != joints_.end() && found->second.by_convolution) {
      const auto& conv = std::get<Conv2dGradInput>(node.op);
      found->second = sums(found->second, old, node, Conv2dGradInputNorm{conv.window, conv.input}, node.outputs[0]);
    } else if (found != joints_.end() && found->second.by_pool) {
      const auto& pool = std::get<MaxPoolGradSum>(node.op);
      found->second = sums(found->second, old, node, MaxPoolGradNormSums{pool.window, pool.input}, node.outputs[0]);
    } else if (const auto grad = joint_of_.find(n); grad != joint_of_.end()) {
      append_gradient(node, joints_.at(grad->second), old);
    } else {
      graph_.append(node);
      if (found != joints_.end()) found->second = sums(found->second, old, node, BatchNormGradSums{}, -1);
    }
  }

  // Appends what sums for the joint's norms, whose shifts get their gradient. `dz`: its first output; -1: it has none.
  Joint sums(Joint joint, const std::vector<Node>& old, const Node& maker, Op op, ValueId dz) {
    std::vector<ValueId> inputs{joint.y, maker.outputs[0], joint.shift};
    const int64_t channels = graph_.value(joint.shift).desc.shape[0];
    for (size_t i = 0; i < 2 && channels < graph_.value(joint.y).desc.shape.c(); ++i) {
      const std::string part = graph_.value(inputs[i]).name + ".part";
      inputs[i] = graph_.add_node(part, Slice{joint.begin, channels}, {inputs[i]}, Phase::backward).front();
    }
    if (joint.by_convolution) inputs = inputs_of(maker, joint);
    if (joint.by_pool) inputs = pool_inputs(maker, joint);
    const std::string name = dz >= 0 ? maker.name : maker.name + ".sums";
    std::vector<ValueId> outputs = graph_.add_node(name, std::move(op), std::move(inputs), Phase::backward);
    if (dz >= 0) graph_.replace_output(static_cast<NodeId>(graph_.nodes.size() - 1), 0, dz);
    const ParameterId shift = graph_.value(old[joint.norms[0].grad].outputs[2]).gradient_of;  // -1: not trained
    for (const Norm& norm : joint.norms) {
      for (size_t vector : {1, 2}) {
        Value& own = graph_.value(old[norm.grad].outputs[vector]);
        own.producer = own.gradient_of = -1;
      }
    }
    graph_.value(outputs[joint.by_convolution ? 2 : joint.by_pool ? 1 : 0]).gradient_of = shift;
    joint.by_y = outputs[outputs.size() - 2];
    joint.constant = outputs.back();
    return joint;
  }

  void append_gradient(Node& node, const Joint& joint, const std::vector<Node>& old) {
    const std::vector<ValueId>& in = node.inputs;
    if (const auto* pool = std::get_if<BatchNormMaxPoolGrad>(&node.op)) {
      node.op = BatchNormMaxPoolGradOfSums{pool->window};
      node.inputs = {in[0], in[1], in[2], in[3], in[5], in[6], joint.by_y, joint.constant};
      node.outputs.resize(1);
      return graph_.append(node);
    }
    BatchNormGradOfSums op{.relu = !joint.by_convolution};
    for (const Norm& norm : joint.norms) {
      if (old[norm.grad].outputs[0] == node.outputs[0]) break;
      op.begin += graph_.value(old[norm.grad].outputs[0]).desc.shape.c();
    }
    node.inputs = {in[0], in[1], in[2], in[3], in[5], joint.by_y, joint.constant};
    node.outputs.resize(1);
    node.op = op;
    graph_.append(node);
  }

  Graph& graph_;
  const Backend& backend_;
  std::vector<std::vector<NodeId>> readers_;
  std::map<NodeId, Norm> norms_;        // by BatchNormOfSumsGrad
  std::map<ValueId, Joint> joints_;     // by the gradient that reaches them
  std::map<NodeId, ValueId> joint_of_;  // by BatchNormOfSumsGrad
};

}  // namespace

int sum_normalized(Graph& graph, const Backend& backend) { return Summer(graph, backend).run(); }

}  // namespace lockstep
