#include "graph/gradients.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

template <class Operation>
concept NotDifferentiable = !Operation::facts.differentiable;

// Visits the forward nodes from last to first. The gradient of a value is complete once all its readers have been
// visited; it is the sum of their contributions.
class Differentiator {
 public:
  explicit Differentiator(Graph& graph)
      : graph_(graph), parts_(graph.values.size()), slices_(graph.values.size()), wanted_(graph.values.size()) {
    for (size_t v = 0; v < graph.values.size(); ++v) wanted_[v] = graph.values[v].role == ValueRole::parameter;
    for (const Node& node : graph.nodes) {
      bool any = false;
      for (ValueId input : node.inputs) any = any || wanted(input);
      for (ValueId output : node.outputs) wanted_[output] = any;
    }
  }

  void run() {
    const auto forward_nodes = static_cast<NodeId>(graph_.nodes.size());
    for (NodeId n = forward_nodes - 1; n >= 0; --n) {
      current_ = graph_.node(n);  // a copy: appending nodes moves the originals
      if (wanted(out(0)) && influences_loss()) std::visit([&](const auto& op) { rule(op); }, current_.op);
    }
    mark_parameters();
  }

 private:
  bool wanted(ValueId v) const { return wanted_[v]; }
  bool influences_loss() const {
    const auto y = static_cast<size_t>(out(0));
    return std::holds_alternative<SoftmaxCrossEntropy>(current_.op) || !parts_[y].empty() || !slices_[y].empty();
  }
  bool wants_input(size_t i) const { return wanted(current_.inputs[i]); }
  ValueId in(size_t i) const { return current_.inputs[i]; }
  ValueId out(size_t i) const { return current_.outputs[i]; }
  const Shape& shape_in(size_t i) const { return graph_.value(in(i)).desc.shape; }

  std::vector<ValueId> emit(std::string_view suffix, Op op, std::vector<ValueId> inputs) {
    auto outputs =
        graph_.add_node(fmt::format("{}.{}", current_.name, suffix), std::move(op), std::move(inputs), Phase::backward);
    parts_.resize(graph_.values.size());
    slices_.resize(graph_.values.size());
    return outputs;
  }

  // Returns the gradient of the current node's first output.
  ValueId dy() {
    constexpr std::ptrdiff_t kMostTerms = 16;  // of one addition: backends have tables of this size
    join_slices();
    std::vector<ValueId> parts = parts_[out(0)];  // a copy: emit() grows parts_
    for (int i = 0; parts.size() > 1; ++i) {
      const auto end = parts.begin() + std::min(kMostTerms, std::ssize(parts));
      const std::string suffix = i == 0 ? "grad_sum" : fmt::format("grad_sum_{}", i);
      const ValueId sum = emit(suffix, Add{}, {parts.begin(), end}).front();
      parts.erase(parts.begin() + 1, end);
      parts[0] = sum;
    }
    parts_[out(0)] = parts;
    return parts[0];
  }

  // Concatenates the gradients of the slices of the current node's output, which cover every channel once.
  void join_slices() {
    std::vector<SliceGradient> slices = std::move(slices_[out(0)]);
    if (slices.empty()) return;
    std::ranges::sort(slices, {}, &SliceGradient::begin);
    std::vector<ValueId> members;
    int64_t end = 0;
    for (const SliceGradient& slice : slices) {
      require(slice.begin == end, "{}: its slices leave out or repeat channel {}", current_.name, end);
      end += graph_.value(slice.gradient).desc.shape.c();
      members.push_back(slice.gradient);
    }
    require(end == graph_.value(out(0)).desc.shape.c(), "{}: nothing reads channel {}", current_.name, end);
    parts_[out(0)].push_back(emit("grad_join", Concat{}, std::move(members)).front());
  }

  void give(size_t input, ValueId gradient) {
    if (wants_input(input)) parts_[in(input)].push_back(gradient);
  }

  // For operations with one input whose gradient is one node that reads `inputs` and dy.
  void unary(Op op, std::vector<ValueId> inputs) { give(0, emit("grad", std::move(op), std::move(inputs)).front()); }

  void rule(const Conv2d& op) {
    const ValueId d = dy();
    if (wants_input(1) || (op.bias && wants_input(2))) {
      const auto weights = emit("grad_weights", Conv2dGradWeights{op.window, op.bias, op.groups}, {in(0), d});
      give(1, weights[0]);
      if (op.bias) give(2, weights[1]);
    }
    if (wants_input(0)) {
      give(0, emit("grad_input", Conv2dGradInput{op.window, shape_in(0), op.groups}, {d, in(1)}).front());
    }
  }
  void rule(const Linear& op) {
    const ValueId d = dy();
    if (wants_input(1) || (op.bias && wants_input(2))) {
      const auto weights = emit("grad_weights", LinearGradWeights{op.bias}, {in(0), d});
      give(1, weights[0]);
      if (op.bias) give(2, weights[1]);
    }
    if (wants_input(0)) give(0, emit("grad_input", LinearGradInput{}, {d, in(1)}).front());
  }
  void rule(const EmbeddingBag&) {
    const auto d = emit("grad", EmbeddingBagGrad{shape_in(0)[0]}, {dy(), in(1), in(2)});
    give(0, d[0]);
    give(3, d[1]);
  }
  void rule(const BatchNorm& op) {
    const auto d = emit("grad", BatchNormGrad{op.epsilon, op.relu}, {in(0), dy(), in(1), out(1), out(2), out(3)});
    give(0, d[0]);
    give(1, d[1]);
    give(2, d[2]);
  }
  void rule(const BatchNormInference& op) {
    const auto d = emit("grad", BatchNormInferenceGrad{op.epsilon, op.relu}, {in(0), dy(), in(1), in(3), in(4), in(2)});
    give(0, d[0]);
    give(1, d[1]);
    give(2, d[2]);
  }
  // The gradients of the parameters are sums over this rank's samples, like all others. Only the gradient of the input
  // depends on the samples of all ranks.
  void rule(const SyncBatchNorm& op) {
    std::vector<ValueId> inputs = {in(0), dy(), in(1), out(1), out(2), out(3)};
    const auto own = emit("grad_sums", SyncBatchNormGradSums{op.epsilon, op.relu}, inputs);
    give(1, own[0]);
    give(2, own[1]);
    inputs.push_back(emit("grad_all_sums", SumOverRanks{}, {own[2]}).front());
    give(0, emit("grad", SyncBatchNormGrad{op.epsilon, op.relu, op.values}, inputs).front());
  }
  void rule(const Relu& op) { unary(ReluGrad{op.six}, {out(0), dy()}); }
  void rule(const Add&) {
    const ValueId d = dy();
    for (size_t i = 0; i < current_.inputs.size(); ++i) give(i, d);
  }
  void rule(const Dropout& op) { unary(op, {dy(), in(1)}); }
  void rule(const MaxPool& op) { unary(MaxPoolGrad{op.window, shape_in(0)}, {dy(), out(1)}); }
  void rule(const AvgPool& op) { unary(AvgPoolGrad{op.window, op.count_include_pad, shape_in(0)}, {dy()}); }
  void rule(const LocalResponseNorm& op) {
    unary(LocalResponseNormGrad{op.size, op.alpha, op.beta, op.k}, {in(0), dy()});
  }
  void rule(const Concat&) {
    const ValueId d = dy();
    int64_t begin = 0;
    for (size_t i = 0; i < current_.inputs.size(); ++i) {
      const int64_t count = shape_in(i).c();
      if (wants_input(i)) give(i, emit(fmt::format("grad{}", i), Slice{begin, count}, {d}).front());
      begin += count;
    }
  }
  void rule(const Slice& op) {
    const ValueId d = dy();
    if (wants_input(0)) slices_[in(0)].push_back({op.begin, d});
  }
  void rule(const Reshape&) { unary(Reshape{shape_in(0)}, {dy()}); }
  void rule(const Cast&) { unary(Cast{graph_.value(in(0)).desc.dtype}, {dy()}); }
  void rule(const SoftmaxCrossEntropy& op) {
    std::vector<ValueId> inputs = {out(0), in(1), in(2)};
    if (const ValueId scale = loss_scale(); scale >= 0) inputs.push_back(scale);
    unary(SoftmaxCrossEntropyGrad{op.label_smoothing, head_weight()}, std::move(inputs));
  }
  // Operations of evaluation, of the backward pass and of statistics have no gradient.
  template <NotDifferentiable Operation>
  void rule(const Operation&) {
    fail(ExitCode::internal, "{}: {} has no gradient", current_.name, op_name(current_.op));
  }

  // Returns the external value that scales all gradients, or -1.
  ValueId loss_scale() const {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.role == ValueRole::external && value.external == ExternalInput::loss_scale) {
        return static_cast<ValueId>(v);
      }
    }
    return -1;
  }

  double head_weight() const {
    for (const LossHead& head : graph_.losses) {
      if (head.probabilities == out(0)) return head.weight;
    }
    fail(ExitCode::internal, "{} is no loss head", current_.name);
  }

  void mark_parameters() {
    const auto readers = readers_of(graph_);
    std::vector<bool> trained(static_cast<size_t>(graph_.parameters.size()), false);
    for (ValueId v = 0; v < static_cast<ValueId>(parts_.size()); ++v) {
      if (graph_.value(v).role != ValueRole::parameter || readers[v].empty()) continue;
      const auto& parts = parts_[v];
      const std::string& name = graph_.value(v).name;
      require(!parts.empty(), "parameter \"{}\" does not influence any loss", name);
      require(parts.size() == 1, "parameter \"{}\" is used by {} nodes; shared parameters are not supported", name,
              parts.size());
      const ParameterId first = graph_.value(v).parameter;
      graph_.value(parts[0]).gradient_of = first;
      for (ParameterId id : parameters_in(graph_, first, graph_.value(v).desc.shape)) {
        trained[id] = true;
      }
    }
    for (ParameterId id = 0; id < graph_.parameters.size(); ++id) {
      const Parameter& parameter = graph_.parameters[id];
      require(!parameter.trained() || trained[id], "parameter \"{}\" does not influence any loss", parameter.name);
    }
  }

  struct SliceGradient {
    int64_t begin;  // first channel
    ValueId gradient;
  };

  Graph& graph_;
  std::vector<std::vector<ValueId>> parts_;         // by value: contributions to its gradient
  std::vector<std::vector<SliceGradient>> slices_;  // by value: contributions to the gradient of some of its channels
  std::vector<bool> wanted_;                        // by value: whether it depends on a trained parameter
  Node current_;
};

}  // namespace

void add_gradients(Graph& graph) { Differentiator(graph).run(); }

}  // namespace lockstep
