#include "lockstep/graph/model_builder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

ValueId add_external(Graph& graph, std::string name, ExternalInput which, Shape shape, DType dtype) {
  return graph.add_value({.name = std::move(name),
                          .desc = {shape, dtype, Format::plain()},
                          .role = ValueRole::external,
                          .external = which});
}

Initializer constant(double value) { return {.kind = Initializer::Kind::constant, .value = value}; }
Initializer normal(double deviation) { return {.kind = Initializer::Kind::truncated_normal, .deviation = deviation}; }

}  // namespace

ModelBuilder::ModelBuilder(const ModelOptions& options) : options_(options) {
  const int64_t n = options.batch_size;
  labels_ = add_external(graph_, "labels", ExternalInput::labels, {n}, DType::i32);
  weights_ = add_external(graph_, "weights", ExternalInput::weights, {n}, options.dtype);
  step_ = add_external(graph_, "step", ExternalInput::step, {4}, DType::i32);
}

ValueId ModelBuilder::images() {
  const int64_t n = options_.batch_size, s = options_.image_size;
  if (images_ < 0) images_ = add_external(graph_, "images", ExternalInput::images, {n, 3, s, s}, options_.dtype);
  return images_;
}

ValueId ModelBuilder::parameter(const std::string& name, Shape shape, ParameterKind kind, Initializer init,
                                bool frozen) {
  frozen |= kind <= ParameterKind::norm_shift && names_parameter(options_.freeze, name);
  const ParameterId id =
      graph_.parameters.add({.name = name, .shape = shape, .kind = kind, .init = init, .frozen = frozen});
  const bool trained = graph_.parameters[id].trained();
  return graph_.add_value({.name = name,
                           .desc = {shape, options_.dtype, Format::plain()},
                           .role = trained ? ValueRole::parameter : ValueRole::statistic,
                           .parameter = id});
}

ValueId ModelBuilder::one(const std::string& name, Op op, std::vector<ValueId> inputs) {
  return graph_.add_node(name, std::move(op), std::move(inputs)).front();
}

ValueId ModelBuilder::conv(ValueId x, const std::string& name, const Conv& conv) {
  const Window& w = conv.window;
  const Shape weight{conv.channels, shape(x).c() / conv.groups, w.kernel_h, w.kernel_w};
  std::vector<ValueId> inputs = {x, parameter(name + ".weight", weight, ParameterKind::weight, normal(conv.deviation))};
  if (conv.bias) inputs.push_back(parameter(name + ".bias", {conv.channels}, ParameterKind::bias, constant(0)));
  return one(name, Conv2d{w, conv.bias, conv.groups}, std::move(inputs));
}

ValueId ModelBuilder::batch_norm(ValueId x, const std::string& name, std::optional<double> chosen) {
  const double epsilon = chosen.value_or(options_.bn_epsilon);
  const Shape channels{shape(x).c()};
  const auto scale_kind = options_.bn_scale ? ParameterKind::norm_scale : ParameterKind::fixed_scale;
  const ValueId scale = parameter(name + ".weight", channels, scale_kind, constant(1));
  const ValueId shift = parameter(name + ".bias", channels, ParameterKind::norm_shift, constant(0));
  const bool untrained =
      graph_.value(scale).role != ValueRole::parameter && graph_.value(shift).role != ValueRole::parameter;
  const bool frozen = untrained || names_parameter(options_.freeze_batch_norm, name);
  const ValueId mean = parameter(name + ".running_mean", channels, ParameterKind::running_mean, constant(0), frozen);
  const ValueId var = parameter(name + ".running_var", channels, ParameterKind::running_var, constant(1), frozen);
  if (!options_.training || frozen) return one(name, BatchNormInference{epsilon}, {x, scale, shift, mean, var});
  const auto out = graph_.add_node(name, BatchNorm{epsilon}, {x, scale, shift});
  const auto moments = graph_.add_node(name + ".moments", BatchMoments{options_.batch_size}, {out[1], out[2], mean});
  graph_.value(moments[0]).moment_of = graph_.value(mean).parameter;
  graph_.value(moments[1]).moment_of = graph_.value(var).parameter;
  return out[0];
}

ValueId ModelBuilder::conv_norm_relu(ValueId x, const std::string& name, const Conv& c) {
  return relu(batch_norm(conv(x, name + ".conv", c), name + ".bn"), name + ".relu");
}

ValueId ModelBuilder::relu(ValueId x, const std::string& name, bool six) { return one(name, Relu{six}, {x}); }

ValueId ModelBuilder::add(ValueId x, ValueId y, const std::string& name) { return one(name, Add{}, {x, y}); }

ValueId ModelBuilder::max_pool(ValueId x, const std::string& name, const Window& window) {
  return one(name, MaxPool{window}, {x});
}

ValueId ModelBuilder::avg_pool(ValueId x, const std::string& name, const Window& window, bool count_include_pad) {
  return one(name, AvgPool{window, count_include_pad}, {x});
}

ValueId ModelBuilder::global_avg_pool(ValueId x, const std::string& name) {
  return avg_pool(x, name, {.kernel_h = shape(x).h(), .kernel_w = shape(x).w()});
}

ValueId ModelBuilder::local_response_norm(ValueId x, const std::string& name, const LocalResponseNorm& op) {
  return one(name, op, {x});
}

ValueId ModelBuilder::concat(const std::vector<ValueId>& members, const std::string& name) {
  return one(name, Concat{}, members);
}

ValueId ModelBuilder::flatten(ValueId x, const std::string& name) {
  const Shape& s = shape(x);
  return one(name, Reshape{{s.n(), s.c() * s.h() * s.w()}}, {x});
}

ValueId ModelBuilder::dropout(ValueId x, const std::string& name, std::optional<double> chosen) {
  const double rate = chosen.value_or(options_.dropout);
  if (!options_.training || rate == 0) return x;
  return one(name, Dropout{rate, fnv1a64(name)}, {x, step_});
}

ValueId ModelBuilder::linear(ValueId x, const std::string& name, const Dense& dense) {
  std::vector<ValueId> inputs = {
      x, parameter(name + ".weight", {dense.outputs, shape(x)[1]}, ParameterKind::weight, normal(dense.deviation))};
  if (dense.bias) {
    inputs.push_back(parameter(name + ".bias", {dense.outputs}, ParameterKind::bias, constant(*dense.bias)));
  }
  return one(name, Linear{dense.bias.has_value()}, std::move(inputs));
}

ValueId ModelBuilder::embedding_sum(const std::string& name, const Embedding& e) {
  const Shape bags{options_.batch_size, options_.max_ids};
  const ValueId ids = add_external(graph_, "ids", ExternalInput::ids, bags, DType::i32);
  const ValueId values = add_external(graph_, "values", ExternalInput::values, bags, options_.dtype);
  const ValueId table =
      parameter(name + ".weight", {e.vocabulary, e.width}, ParameterKind::weight, normal(e.deviation));
  const ValueId bias = parameter(name + ".bias", {e.width}, ParameterKind::bias, constant(0));
  return one(name, EmbeddingBag{}, {table, ids, values, bias});
}

void ModelBuilder::loss(ValueId logits, const std::string& name, double weight) {
  const auto out = graph_.add_node(name, SoftmaxCrossEntropy{options_.label_smoothing}, {logits, labels_, weights_});
  for (ValueId v : {logits, out[1], out[2]}) graph_.value(v).kept = true;
  graph_.losses.push_back({name, weight, logits, out[1], out[2], out[0]});
}

void ModelBuilder::check_patterns() const {
  std::vector<std::string> parameters, norms;
  for (const Parameter& p : graph_.parameters.all()) {
    if (p.kind <= ParameterKind::norm_shift) parameters.push_back(p.name);
    if (p.kind == ParameterKind::running_mean) norms.push_back(p.name.substr(0, p.name.rfind('.')));
  }
  for (const std::string& pattern : options_.freeze) require_named(parameters, pattern, "train.freeze", "parameter");
  for (const std::string& pattern : options_.freeze_batch_norm) {
    require_named(norms, pattern, "train.freeze_batch_norm", "batch normalization");
  }
  if (!options_.freeze.empty() && graph_.parameters.trained_elements() == 0) {
    fail(ExitCode::config, "train.freeze matches every parameter of the model: nothing is left to train");
  }
}

Graph ModelBuilder::finish() && {
  if (options_.training) check_patterns();
  return std::move(graph_);
}

}  // namespace lockstep
