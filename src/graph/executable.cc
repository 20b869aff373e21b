#include "lockstep/graph/executable.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "graph/formats.h"
#include "graph/gradients.h"
#include "graph/passes/rewrite.h"
#include "lockstep/base/error.h"
#include "lockstep/base/trace.h"

namespace lockstep {
namespace {

constexpr size_t kMaxOperands = 64;  // a dense block of DenseNet-201 concatenates 49

void* resolve(const Placement& at, const Arenas& arenas) {
  auto in = [&](void* base) -> void* { return static_cast<char*>(base) + at.offset_bytes; };
  switch (at.arena) {
    case Arena::none:
      return nullptr;
    case Arena::parameters:
      return in(arenas.parameters);
    case Arena::copies:
      return in(arenas.copies);
    case Arena::statistics:
      return in(arenas.statistics);
    case Arena::gradients:
      return in(arenas.gradients);
    case Arena::activations:
      return in(arenas.activations);
    // The const_cast is safe: the schedule has external values only as inputs, so no kernel writes to them.
    case Arena::external: {
      const void* input = arenas.external[static_cast<ExternalInput>(at.offset_bytes)];
      require(input != nullptr, "external input {} of a graph is not bound", at.offset_bytes);
      return const_cast<void*>(input);
    }
  }
  return nullptr;
}

std::vector<size_t> storage_of_values(const Graph& graph, const Backend& backend) {
  std::vector<size_t> bytes;
  bytes.reserve(graph.values.size());
  for (const Value& v : graph.values) bytes.push_back(backend.storage_bytes(v.desc));
  return bytes;
}

// Requires that parameters that are read as one value are adjacent in their arena.
void expect_adjacent(const Graph& graph, const ParameterLayout& layout) {
  for (const std::vector<ParameterId>& group : graph.adjacent_parameters) {
    int64_t next = layout.offset[group.front()];
    for (ParameterId id : group) {
      require(layout.offset[id] == next, "\"{}\" does not lie beside \"{}\"", graph.parameters[id].name,
              graph.parameters[group.front()].name);
      next += graph.parameters[id].shape.elements();
    }
  }
}

}  // namespace

const void*& ExternalInputs::operator[](ExternalInput input) {
  using I = ExternalInputs;
  static constexpr const void* I::*kMembers[] = {&I::images, &I::labels, &I::weights, &I::step,   &I::loss_scale,
                                                 &I::ids,    &I::values, &I::pixels,  &I::changes};
  static_assert(std::size(kMembers) == static_cast<size_t>(ExternalInput::changes) + 1, "one for each, in its order");
  return this->*kMembers[static_cast<size_t>(input)];
}

const void* ExternalInputs::operator[](ExternalInput input) const { return const_cast<ExternalInputs&>(*this)[input]; }

std::vector<std::pair<std::string, int>> apply_rewrites(Graph& graph, const Backend& backend) {
  std::vector<std::pair<std::string, int>> applied;
  for (const Rewrite& rewrite : rewrites()) {
    if (rewrite.makes_slices && !backend.reads_slice(BatchNorm{}, 0)) continue;
    applied.emplace_back(rewrite.name, rewrite.apply(graph));
  }
  return applied;
}

Executable Executable::compile(Graph graph, const Backend& backend, const CompileOptions& options) {
  Executable e;
  e.graph_ = std::move(graph);
  if (options.rewrites) e.applied_ = apply_rewrites(e.graph_, backend);
  synchronize_batch_norms(e.graph_, options.synchronized_ranks);
  if (options.pixels) feed_pixels(e.graph_, *options.pixels, options.compute);
  lower_precision(e.graph_, options.compute);
  if (options.training) add_gradients(e.graph_);
  if (options.rewrites && options.training) {
    e.applied_.emplace_back("fuse_conv_norm", fuse_conv_norm(e.graph_, backend));
    e.applied_.emplace_back("sum_into_pool", sum_into_pool(e.graph_, backend));
    e.applied_.emplace_back("sum_behind_pool", sum_behind_pool(e.graph_, backend));
    e.applied_.emplace_back("sum_normalized", sum_normalized(e.graph_, backend));
    e.applied_.emplace_back("gather_casts", gather_casts(e.graph_, backend));
  }
  if (options.rewrites && options.training && options.recompute && backend.recomputes()) {
    e.applied_.emplace_back("recompute", recompute(e.graph_, options.recompute_convolutions));
  }
  choose_formats(e.graph_, backend);
  if (options.rewrites) e.applied_.emplace_back("alias_concat", alias_concat(e.graph_, backend));
  e.schedule_ = make_schedule(e.graph_);
  const ParameterTable& table = e.graph_.parameters;
  if (options.layout) {
    e.layout_ = *options.layout;
  } else {
    e.layout_ = lay_out_parameters(table, options.training ? e.schedule_.gradient_order : trained_in_table_order(table),
                                   e.graph_.adjacent_parameters);
  }
  expect_adjacent(e.graph_, e.layout_);
  e.steps_ = e.compile_kernels(backend, e.schedule_.order);
  e.weights_ = e.compile_kernels(backend, e.schedule_.weights);

  const std::vector<size_t> storage = storage_of_values(e.graph_, backend);
  std::vector<size_t> workspaces;
  for (const Step& step : e.steps_) workspaces.push_back(step.kernel->workspace_bytes());
  const PlanInput input{e.graph_, e.schedule_, e.layout_, storage, workspaces};
  e.plan_ = plan_memory(input);
  verify_plan(input, e.plan_);  // It takes milliseconds, and a wrong plan would silently give wrong weights.

  e.place_operands(e.steps_);
  e.place_operands(e.weights_);
  for (size_t p = 0; p < e.steps_.size(); ++p) e.steps_[p].workspace = e.plan_.workspaces[p];
  return e;
}

std::vector<Executable::Step> Executable::compile_kernels(const Backend& backend,
                                                          const std::vector<NodeId>& nodes) const {
  std::vector<Step> steps;
  for (NodeId id : nodes) {
    const Node& node = graph_.node(id);
    if (node.inputs.size() > kMaxOperands) {
      fail(ExitCode::config, "{} has {} inputs; {} are the most", node.name, node.inputs.size(), kMaxOperands);
    }
    require(node.outputs.size() <= kMaxOperands, "{} has too many outputs", node.name);
    try {
      auto kernel = backend.compile(node.op, graph_.descs(node.inputs), graph_.descs(node.outputs));
      steps.push_back({.node = id, .kernel = std::move(kernel)});
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", node.name, error.what()), error.where());
    }
  }
  return steps;
}

void Executable::place_operands(std::vector<Step>& steps) const {
  for (Step& step : steps) {
    for (ValueId id : graph_.node(step.node).inputs) step.inputs.push_back(plan_.values[id]);
    for (ValueId id : graph_.node(step.node).outputs) step.outputs.push_back(plan_.values[id]);
  }
}

void Executable::run(const Step& step, Stream& stream, const Arenas& arenas, const RankSum& sum) const {
  std::array<void*, kMaxOperands> in, out;
  for (size_t i = 0; i < step.inputs.size(); ++i) in[i] = resolve(step.inputs[i], arenas);
  for (size_t i = 0; i < step.outputs.size(); ++i) out[i] = resolve(step.outputs[i], arenas);
  const Node& node = graph_.node(step.node);
  {
    const TraceScope span(node.name.c_str());
    step.kernel->run(
        {stream, {in.data(), step.inputs.size()}, {out.data(), step.outputs.size()}, resolve(step.workspace, arenas)});
  }
  if (!std::holds_alternative<SumOverRanks>(node.op)) return;
  require(static_cast<bool>(sum), "{} runs without other ranks", node.name);
  sum(stream, out[0], graph_.value(node.outputs[0]).desc.shape.elements(), node.name);
}

void Executable::copy_weights(Stream& stream, const Arenas& arenas) const {
  for (const Step& step : weights_) run(step, stream, arenas, {});
}

void Executable::forward(Stream& stream, const Arenas& arenas, const RankSum& sum) const {
  for (int32_t p = 0; p < schedule_.forward_end; ++p) run(steps_[p], stream, arenas, sum);
}

void Executable::backward(Stream& stream, const Arenas& arenas, const std::function<void(int32_t)>& after,
                          const RankSum& sum) const {
  const auto end = static_cast<int32_t>(steps_.size());
  for (int32_t p = schedule_.forward_end; p < end; ++p) {
    run(steps_[p], stream, arenas, sum);
    if (after) after(p);
  }
}

void* Executable::address(ValueId value, const Arenas& arenas) const { return resolve(plan_.values[value], arenas); }

std::vector<GradientMark> Executable::gradient_marks() const {
  std::vector<size_t> by_offset(schedule_.gradient_order.size());
  std::iota(by_offset.begin(), by_offset.end(), size_t{0});
  auto offset = [&](size_t i) { return layout_.offset[schedule_.gradient_order[i]]; };
  std::sort(by_offset.begin(), by_offset.end(), [&](size_t a, size_t b) { return offset(a) < offset(b); });
  std::vector<GradientMark> marks;
  int32_t ready = 0;
  for (size_t i = 0; i < by_offset.size(); ++i) {
    ready = std::max(ready, schedule_.gradient_ready[by_offset[i]]);
    const int64_t end = i + 1 < by_offset.size() ? offset(by_offset[i + 1]) : layout_.trained_elements;
    marks.push_back({ready, end});
  }
  return marks;
}

ParameterLayout adopt_layout(const ParameterTable& table, const ParameterTable& from, const ParameterLayout& layout) {
  ParameterLayout adopted;
  adopted.trained_elements = layout.trained_elements;
  adopted.statistic_elements = layout.statistic_elements;
  adopted.moment_elements = layout.moment_elements;
  for (const Parameter& p : table.all()) {
    const ParameterId id = from.find(p.name);
    require(id >= 0 && from[id].shape == p.shape, "\"{}\" is no parameter of the other graph", p.name);
    adopted.offset.push_back(layout.offset[id]);
  }
  return adopted;
}

}  // namespace lockstep
