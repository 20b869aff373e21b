#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/passes/rewrite.h"

namespace lockstep {
namespace {

// A batch norm, by nodes and values of the graph before and after.
struct FusedNorm {
  NodeId convolution = -1;  // that computes its sums; -1: none
  NodeId moments = -1;
  int64_t begin = 0;      // its first channel in the output of the convolution
  bool whole = false;     // not a slice of it
  bool read_raw = false;  // convolutions read its input and normalize it themselves
  ValueId inverse = -1, factor = -1, slope = -1, offset = -1;
  NodeId pool = -1, pool_grad = -1;  // the max pool that alone reads it, and its gradient, which alone reaches it
};

// What a gradient by input computes beside it.
struct NormGradient {
  NodeId norm = -1, grad = -1;  // the batch norm and its BatchNormGrad
  ValueId by_dz = -1, by_x = -1, constant = -1;
};

class Fuser {
 public:
  Fuser(Graph& graph, const Backend& backend) : graph_(graph), backend_(backend), readers_(readers_of(graph)) {}

  int run() {
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) find_norm(n);
    for (auto& [n, norm] : norms_) norm.read_raw = may_read_raw(graph_.node(n), norm);
    for (const auto& [n, norm] : norms_) find_gradient(n, norm);
    for (auto& [n, norm] : norms_) find_pool(graph_.node(n), norm);
    old_ = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (NodeId n = 0; n < static_cast<NodeId>(old_.size()); ++n) rebuild(n);
    return fused_;
  }

 private:
  template <class Operation>
  const Operation* maker_of(ValueId v) const {
    const NodeId maker = graph_.value(v).producer;
    return maker < 0 ? nullptr : std::get_if<Operation>(&graph_.node(maker).op);
  }

  bool can(const Op& op, const std::vector<ValueId>& inputs, size_t vectors = 0, DType type = DType::f32) const {
    std::vector<TensorDesc> in = graph_.descs(inputs);
    in.resize(in.size() + vectors, {{in[0].shape.c()}, type, Format::plain()});
    return backend_.can(op, in, infer(op, in));
  }

  void find_norm(NodeId n) {
    const Node& node = graph_.node(n);
    if (!std::holds_alternative<BatchNorm>(node.op)) return;
    FusedNorm norm;
    ValueId y = node.inputs[0];
    const auto* slice = maker_of<Slice>(y);
    norm.whole = !slice;
    if (slice) {
      norm.begin = slice->begin;
      y = graph_.node(graph_.value(y).producer).inputs[0];
    }
    const auto* conv = maker_of<Conv2d>(y);
    if (conv && !conv->bias && conv->groups == 1 &&
        can(Conv2dStatistics{conv->window}, graph_.node(graph_.value(y).producer).inputs)) {
      norm.convolution = graph_.value(y).producer;
    }
    for (size_t output : {1, 2, 3}) {
      for (const NodeId reader : readers_[node.outputs[output]]) {
        const bool moments = std::holds_alternative<BatchMoments>(graph_.node(reader).op);
        if (!moments && !std::holds_alternative<BatchNormGrad>(graph_.node(reader).op)) return;
        if (moments) norm.moments = reader;
      }
    }
    if (norm.moments < 0) return;
    const ValueId x = node.inputs[0];
    const BatchNormStatistics statistics{.samples = 1, .to = graph_.value(x).desc.dtype};
    const ValueId running_mean = graph_.node(norm.moments).inputs[2];
    if (norm.convolution < 0 && !can(statistics, {x, node.inputs[1], node.inputs[2], running_mean})) return;
    norms_.emplace(n, norm);
  }

  // The norm that a convolution's image comes from if the convolution can normalize it; null: it reads what it read.
  const FusedNorm* raw(ValueId image) const {
    const NodeId maker = image < static_cast<ValueId>(makers_.size()) ? makers_[image] : -1;
    return maker < 0 ? nullptr : &norms_.at(maker);
  }

  // Returns whether only convolutions and their gradients by weights read the result, all of which can normalize the
  // input themselves, so that the result need not be written.
  bool may_read_raw(const Node& node, const FusedNorm& norm) {
    const ValueId x = node.inputs[0], z = node.outputs[0];
    if (!norm.whole || !std::get<BatchNorm>(node.op).relu || graph_.value(z).kept || readers_[z].empty()) return false;
    const DType type = graph_.value(x).desc.dtype;
    for (const NodeId reader : readers_[z]) {
      const Node& user = graph_.node(reader);
      if (user.inputs[0] != z || std::ranges::count(user.inputs, z) != 1) return false;
      std::vector<ValueId> inputs = user.inputs;
      inputs[0] = x;
      const auto* conv = std::get_if<Conv2d>(&user.op);
      const auto* weights = std::get_if<Conv2dGradWeights>(&user.op);
      if (conv && !conv->bias && conv->groups == 1) {
        if (!can(Conv2dStatistics{conv->window, true}, inputs, 2, type)) return false;
      } else if (!weights || weights->bias || weights->groups != 1 ||
                 !can(Conv2dNormalizedGradWeights{weights->window}, inputs, 2, type)) {
        return false;
      }
    }
    makers_.resize(graph_.values.size(), -1);
    makers_[z] = graph_.value(z).producer;
    return true;
  }

  // Finds the convolution whose gradient by input is all that reaches the norm.
  void find_gradient(NodeId n, const FusedNorm& norm) {
    const Node& node = graph_.node(n);
    if (!norm.whole || !std::get<BatchNorm>(node.op).relu) return;
    for (const NodeId reader : readers_[node.outputs[1]]) {
      const Node& grad = graph_.node(reader);
      if (!std::holds_alternative<BatchNormGrad>(grad.op)) continue;
      const ValueId dz = grad.inputs[1];
      const auto* conv = maker_of<Conv2dGradInput>(dz);
      if (!conv || conv->groups != 1 || readers_[dz].size() != 1) return;
      const NodeId maker = graph_.value(dz).producer;
      std::vector<ValueId> inputs = graph_.node(maker).inputs;
      inputs.insert(inputs.end(), {node.inputs[0], node.inputs[1], node.inputs[2], node.outputs[1], node.outputs[2]});
      if (can(Conv2dGradInputNorm{conv->window, conv->input}, inputs)) gradients_[maker] = {n, reader};
    }
  }

  void find_pool(const Node& node, FusedNorm& norm) const {
    const ValueId z = node.outputs[0];
    if (!std::get<BatchNorm>(node.op).relu || graph_.value(z).kept || readers_[z].size() != 1) return;
    const NodeId reader = readers_[z][0];
    const auto* pool = std::get_if<MaxPool>(&graph_.node(reader).op);
    const std::vector<ValueId> inputs{node.inputs[0], node.inputs[2], node.outputs[1], node.outputs[1]};
    if (!pool || !can(BatchNormMaxPool{pool->window}, inputs)) return;
    for (const NodeId grad : readers_[node.outputs[1]]) {
      if (!std::holds_alternative<BatchNormGrad>(graph_.node(grad).op)) continue;
      const ValueId dz = graph_.node(grad).inputs[1];
      if (!maker_of<MaxPoolGrad>(dz) || readers_[dz].size() != 1) return;
      norm.pool_grad = graph_.value(dz).producer;
    }
    norm.pool = reader;
  }

  void rebuild(NodeId n) {
    const Node& node = old_[n];
    if (const auto found = norms_.find(n); found != norms_.end()) return rebuild_norm(node, found->second);
    if (const auto found = gradients_.find(n); found != gradients_.end())
      return rebuild_grad_input(node, found->second);
    if (const auto* conv = std::get_if<Conv2d>(&node.op)) return rebuild_convolution(n, node, *conv);
    if (const auto* weights = std::get_if<Conv2dGradWeights>(&node.op); weights && raw(node.inputs[0])) {
      const FusedNorm& norm = *raw(node.inputs[0]);
      ++fused_;
      return append(node, Conv2dNormalizedGradWeights{weights->window},
                    {image_of(node), node.inputs[1], norm.slope, norm.offset});
    }
    if (std::holds_alternative<BatchNormGrad>(node.op)) return rebuild_norm_grad(n, node);
    for (const auto& [forward, norm] : norms_) {
      if (norm.moments == n) return;
      if (norm.pool_grad == n) {
        graph_.value(node.outputs[0]).producer = -1;
        return;
      }
      if (norm.pool != n) continue;
      const Node& of = old_[forward];
      return append(node, BatchNormMaxPool{std::get<MaxPool>(node.op).window},
                    {of.inputs[0], of.inputs[2], of.outputs[1], norm.factor});
    }
    append(node, node.op, node.inputs);
  }

  // What a convolution reads that normalizes its image.
  ValueId image_of(const Node& reader) const { return old_[makers_[reader.inputs[0]]].inputs[0]; }

  void rebuild_convolution(NodeId n, const Node& node, const Conv2d& conv) {
    const FusedNorm* const norm = raw(node.inputs[0]);
    const bool summed = std::ranges::any_of(norms_, [&](const auto& one) { return one.second.convolution == n; });
    if (!norm && !summed) return append(node, node.op, node.inputs);
    ++fused_;
    std::vector<ValueId> inputs = node.inputs;
    if (norm) {
      inputs[0] = image_of(node);
      inputs.insert(inputs.end(), {norm->slope, norm->offset});
    }
    append(node, Conv2dStatistics{conv.window, norm != nullptr}, std::move(inputs));
    sums_[n] = {graph_.nodes.back().outputs[1], graph_.nodes.back().outputs[2]};
  }

  void rebuild_norm(const Node& node, FusedNorm& norm) {
    const BatchNorm& op = std::get<BatchNorm>(node.op);
    const Node& moments = old_[norm.moments];
    const TensorDesc x = graph_.value(node.inputs[0]).desc;
    const int64_t samples = std::get<BatchMoments>(moments.op).samples;
    std::vector<ValueId> inputs{node.inputs[0], node.inputs[1], node.inputs[2], moments.inputs[2]};
    Op vectors = BatchNormStatistics{.epsilon = op.epsilon, .samples = samples, .to = x.dtype};
    if (norm.convolution >= 0) {
      const auto [sum, squares] = sums_.at(norm.convolution);
      inputs[0] = sum;
      inputs.insert(inputs.begin() + 1, squares);
      const int64_t values = x.shape.n() * x.shape.h() * x.shape.w();
      vectors = BatchNormOfSums{
          .epsilon = op.epsilon, .values = values, .samples = samples, .begin = norm.begin, .to = x.dtype};
    }
    const std::vector<ValueId> made =
        graph_.add_node(node.name + ".vectors", std::move(vectors), std::move(inputs), node.phase);
    const auto added = static_cast<NodeId>(graph_.nodes.size() - 1);
    norm.inverse = made[2];
    norm.factor = made[3];
    norm.slope = made[4];
    norm.offset = made[5];
    const std::pair<size_t, ValueId> known[] = {
        {0, node.outputs[1]}, {1, node.outputs[2]}, {6, moments.outputs[0]}, {7, moments.outputs[1]}};
    for (const auto& [output, value] : known) graph_.replace_output(added, output, value);
    graph_.value(node.outputs[3]).producer = -1;  // nothing reads what was saved
    if (norm.pool >= 0) {
      graph_.value(node.outputs[0]).producer = -1;
      return;
    }
    Node apply = node;
    apply.outputs = {node.outputs[0]};
    append(apply, BatchNormInference{op.epsilon, op.relu},
           {node.inputs[0], node.inputs[1], node.inputs[2], node.outputs[1], node.outputs[2]});
  }

  void rebuild_grad_input(const Node& node, NormGradient& gradient) {
    ++fused_;
    const Node &norm = old_[gradient.norm], &grad = old_[gradient.grad];
    const auto& conv = std::get<Conv2dGradInput>(node.op);
    Node fused = node;
    fused.outputs = {node.outputs[0], grad.outputs[1], grad.outputs[2]};
    append(fused, Conv2dGradInputNorm{conv.window, conv.input},
           {node.inputs[0], node.inputs[1], norm.inputs[0], norm.inputs[1], norm.inputs[2], norm.outputs[1],
            norms_.at(gradient.norm).inverse});
    const std::vector<ValueId>& outputs = graph_.nodes.back().outputs;
    gradient.by_dz = outputs[3];
    gradient.by_x = outputs[4];
    gradient.constant = outputs[5];
  }

  void rebuild_norm_grad(NodeId n, const Node& node) {
    for (const auto& [maker, gradient] : gradients_) {
      if (gradient.grad != n) continue;
      Node apply = node;
      apply.outputs = {node.outputs[0]};
      return append(apply, BatchNormGradApply{},
                    {node.inputs[1], node.inputs[0], gradient.by_dz, gradient.by_x, gradient.constant});
    }
    for (const auto& [forward, norm] : norms_) {
      const Node& of = old_[forward];
      if (of.outputs[1] != node.inputs[3]) continue;
      const auto& op = std::get<BatchNormGrad>(node.op);
      if (norm.pool >= 0) {
        const Node& pool = old_[norm.pool_grad];
        // A scale that is not trained is 1.
        const bool fixed = graph_.value(of.inputs[1]).role == ValueRole::statistic;
        std::vector<ValueId> inputs{node.inputs[0], pool.inputs[0], of.inputs[2],  of.outputs[1],
                                    of.outputs[2],  norm.factor,    pool.inputs[1]};
        if (fixed) inputs.push_back(old_[norm.pool].outputs[0]);
        return append(node, BatchNormMaxPoolGrad{std::get<MaxPoolGrad>(pool.op).window, op.epsilon, fixed},
                      std::move(inputs));
      }
      return append(node, BatchNormOfSumsGrad{op.epsilon, op.relu},
                    {node.inputs[0], node.inputs[1], of.inputs[2], of.outputs[1], of.outputs[2], norm.factor});
    }
    append(node, node.op, node.inputs);
  }

  // Appends a node that computes `op` in the place of another, and so writes its values, and new ones if it has more.
  void append(const Node& place, Op op, std::vector<ValueId> inputs) {
    Node node{place.name, std::move(op), std::move(inputs), place.outputs, place.phase};
    const auto outputs = infer(node.op, graph_.descs(node.inputs));
    for (size_t i = node.outputs.size(); i < outputs.size(); ++i) {
      node.outputs.push_back(graph_.add_value({.name = fmt::format("{}:{}", node.name, i), .desc = outputs[i]}));
    }
    graph_.append(std::move(node));
  }

  Graph& graph_;
  const Backend& backend_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<Node> old_;
  std::map<NodeId, FusedNorm> norms_;                   // by BatchNorm
  std::map<NodeId, NormGradient> gradients_;            // by Conv2dGradInput
  std::map<NodeId, std::pair<ValueId, ValueId>> sums_;  // by Conv2d
  std::vector<NodeId> makers_;                          // by value: the batch norm that makes it if it is read raw
  int fused_ = 0;
};

}  // namespace

int fuse_conv_norm(Graph& graph, const Backend& backend) { return Fuser(graph, backend).run(); }

}  // namespace lockstep
