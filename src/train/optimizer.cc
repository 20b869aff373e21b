#include "lockstep/train/optimizer.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/config/load.h"
#include "lockstep/graph/moments.h"

namespace lockstep {
namespace {

// Returns one segment per trained parameter, in arena order. LARS scales the learning rate only for weights, as in the
// experiments of its paper: the norm of a bias or a scale is often 0 or 1, which says nothing about a suitable step
// size.
std::vector<UpdateSegment> segments_of(const ParameterTable& table, const ParameterLayout& layout,
                                       const Config::Optimizer& config) {
  const std::vector<double> factors = rate_factors(table, config);
  std::vector<UpdateSegment> segments;
  for (ParameterId id = 0; id < table.size(); ++id) {
    if (!table[id].trained()) continue;
    const bool decayed = config.decay_norm_and_bias || !table[id].is_norm_or_bias();
    segments.push_back({.offset = layout.offset[id],
                        .count = table[id].shape.elements(),
                        .weight_decay = decayed ? config.weight_decay : 0,
                        .rate_factor = factors[id],
                        .adaptive = config.name == "lars" && !table[id].is_norm_or_bias()});
  }
  std::sort(segments.begin(), segments.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return segments;
}

std::vector<WeightCopy> copies_in(const Executable& executable) {
  std::vector<WeightCopy> copies;
  for (size_t v = 0; v < executable.graph().values.size(); ++v) {
    const Value& value = executable.graph().values[v];
    if (value.copy_of < 0) continue;
    copies.push_back({executable.layout().offset[value.copy_of], executable.plan().values[v].offset_bytes, value.desc});
  }
  return copies;
}

std::vector<ApplyStatistics::Entry> statistic_entries(const Graph& graph, const ParameterLayout& layout) {
  std::vector<ApplyStatistics::Entry> entries;
  for (const NormMoments& norm : moments_of(graph)) {
    entries.push_back({layout.offset[norm.mean], layout.offset[norm.var], norm.channels, norm.spatial});
  }
  return entries;
}

}  // namespace

OptimizerKind parse_optimizer(std::string_view name) {
  for (const OptimizerSlots& row : optimizers()) {
    if (row.name == name) return row.kind;
  }
  fail(ExitCode::config, "optimizer.name = \"{}\" is not an optimizer of this version", name);
}

std::vector<double> rate_factors(const ParameterTable& table, const Config::Optimizer& config) {
  const std::vector<LearningRateFactor> items = learning_rate_factors(config);
  std::vector<std::string> names;
  std::vector<double> factors;
  for (const Parameter& p : table.all()) {
    const auto first =
        std::ranges::find_if(items, [&](const auto& item) { return names_parameter(item.pattern, p.name); });
    factors.push_back(first == items.end() ? 1 : first->factor);
    if (p.trained()) names.push_back(p.name);
  }
  for (const LearningRateFactor& item : items) {
    require_named(names, item.pattern, "optimizer.lr_factors", "trained parameter");
  }
  return factors;
}

Updater::Updater(const Backend& backend, const Executable& executable, const Config& config) {
  const ParameterLayout& layout = executable.layout();
  ApplyOptimizer rule{.kind = parse_optimizer(config.optimizer.name),
                      .momentum = config.optimizer.momentum,
                      .nesterov = config.optimizer.nesterov,
                      .decay = config.optimizer.decay,
                      .beta1 = config.optimizer.beta1,
                      .beta2 = config.optimizer.beta2,
                      .epsilon = config.optimizer.epsilon,
                      .trust = config.optimizer.trust,
                      .l1 = config.optimizer.l1,
                      .l2 = config.optimizer.l2,
                      .learning_rate_power = config.optimizer.learning_rate_power,
                      .segments = segments_of(executable.graph().parameters, layout, config.optimizer),
                      .copies = copies_in(executable)};
  optimizer_ = backend.compile(UpdateOp{DType::f32, std::move(rule)});
  statistics_ = backend.compile(
      UpdateOp{DType::f32, ApplyStatistics{config.model.bn_momentum, statistic_entries(executable.graph(), layout)}});
  if (config.ema.decay > 0) {
    average_parameters_ = backend.compile(UpdateOp{DType::f32, ApplyAverage{layout.trained_elements}});
    average_statistics_ = backend.compile(UpdateOp{DType::f32, ApplyAverage{layout.statistic_elements}});
  }
  size_t workspace = 0;
  for (const Kernel* k : {optimizer_.get(), statistics_.get(), average_parameters_.get(), average_statistics_.get()}) {
    if (k) workspace = std::max(workspace, k->workspace_bytes());
  }
  workspace_ = backend.allocate(workspace);
}

void Updater::run(const Kernel& kernel, Stream& stream, Pointers inputs, Pointers outputs) const {
  kernel.run({stream, inputs, outputs, workspace_.data()});
}

void Updater::apply(Stream& stream, const ModelState& state, void* scalars) const {
  std::vector<void*> targets{state.parameters.data()};
  for (const Buffer& slot : state.slots) targets.push_back(slot.data());
  if (state.copies.bytes() > 0) targets.push_back(state.copies.data());
  const std::array<void*, 2> from_gradients{state.gradients.data(), scalars};
  run(*optimizer_, stream, from_gradients, targets);

  float* moments = state.gradients.as<float>() + state.trained_elements;
  const std::array<void*, 2> from_moments{moments, scalars};
  const std::array<void*, 1> statistics{state.statistics.data()};
  run(*statistics_, stream, from_moments, statistics);
  if (!average_parameters_) return;

  auto average = [&](const Kernel& kernel, const Buffer& value, const Buffer& target) {
    const std::array<void*, 2> in{value.data(), scalars};
    const std::array<void*, 1> out{target.data()};
    run(kernel, stream, in, out);
  };
  average(*average_parameters_, state.parameters, state.average_parameters);
  average(*average_statistics_, state.statistics, state.average_statistics);
}

}  // namespace lockstep
