#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "app/commands.h"
#include "app/core_placement.h"
#include "app/rank_mapping.h"
#include "app/tuned_plans.h"
#include "lockstep/backend/backend.h"
#include "lockstep/backend/cpu_library.h"
#include "lockstep/backend/update.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/cpu_cores.h"
#include "lockstep/base/cpu_topology.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/advice.h"
#include "lockstep/config/load.h"
#include "lockstep/config/sources.h"
#include "lockstep/exchange/onnx_import.h"
#include "lockstep/graph/executable.h"
#include "lockstep/graph/fusions.h"
#include "lockstep/io/file.h"
#include "lockstep/train/model_graphs.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/train/schedule.h"

namespace lockstep {
namespace {

constexpr double kMegabyte = 1e6;
constexpr size_t kPeakParts = 12;

int64_t multiply_adds_of(const Graph& graph, const Node& node) {
  return multiply_adds(node.op, graph.descs(node.inputs), graph.descs(node.outputs));
}

int64_t forward_multiply_adds(const Graph& graph) {
  int64_t sum = 0;
  for (const Node& node : graph.nodes) sum += node.phase == Phase::forward ? multiply_adds_of(graph, node) : 0;
  return sum;
}

int64_t backward_multiply_adds(const Executable& e) {
  int64_t sum = 0;
  for (size_t p = e.schedule().forward_end; p < e.schedule().order.size(); ++p) {
    sum += multiply_adds_of(e.graph(), e.graph().node(e.schedule().order[p]));
  }
  return sum;
}

// Returns the number of elements of the parameters that a node reads, and how the update treats them unless it treats
// all of them alike.
std::pair<int64_t, std::string> parameters_of(const Graph& graph, const Node& node,
                                              const std::vector<double>& rate_factors) {
  int64_t sum = 0;
  bool trained = false, frozen = false;
  std::set<double> factors;
  for (const ValueId input : node.inputs) {
    const ParameterId id = graph.value(input).parameter;
    if (id < 0 || graph.parameters[id].kind > ParameterKind::norm_shift) continue;
    sum += graph.parameters[id].shape.elements();
    (graph.parameters[id].frozen ? frozen : trained) = true;
    if (!graph.parameters[id].frozen && rate_factors[id] != 1) factors.insert(rate_factors[id]);
  }
  std::string treatment = !frozen ? "" : trained ? "  partly frozen" : "  frozen";
  if (!factors.empty()) treatment += fmt::format("  learning rate x {}", fmt::join(factors, ", "));
  return {sum, treatment};
}

void print_layers(const Graph& graph, const std::vector<double>& rate_factors) {
  fmt::print("\n{:<40} {:<22} {:>20} {:>12} {:>14}\n", "layer", "operation", "output", "parameters", "mult-adds");
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::forward) continue;
    const auto outputs = graph.descs(node.outputs);
    const auto [elements, treatment] = parameters_of(graph, node, rate_factors);
    fmt::print("{:<40} {:<22} {:>20} {:>12} {:>14}{}\n", node.name, op_name(node.op), outputs[0].shape.to_string(),
               elements, multiply_adds_of(graph, node), treatment);
  }
}

void print_memory(const Config& config, const Executable& e, const BatchSizes& batches) {
  const int64_t trained = e.layout().trained_elements, statistics = e.layout().statistic_elements;
  const auto slots = static_cast<int64_t>(optimizer_slots(parse_optimizer(config.optimizer.name)).slots.size());
  const int64_t averages = config.ema.decay > 0 ? trained + statistics : 0;
  const auto megabytes = [](int64_t elements) { return static_cast<double>(elements) * sizeof(float) / kMegabyte; };
  const int64_t arenas = config.train.accumulate > 1 ? 2 : 1;
  fmt::print("\nmemory of one rank (batch of {}):\n", batches.per_rank);
  fmt::print("  parameters and statistics   {:10.1f} MB\n", megabytes(trained + statistics));
  fmt::print("  gradients and moments       {:10.1f} MB\n", megabytes(arenas * (trained + e.layout().moment_elements)));
  fmt::print("  optimizer slots ({})         {:10.1f} MB\n", slots, megabytes(slots * trained));
  fmt::print("  averages                    {:10.1f} MB\n", megabytes(averages));
  if (e.plan().copy_bytes > 0) {
    fmt::print("  parameters in 16 bits       {:10.1f} MB\n", static_cast<double>(e.plan().copy_bytes) / kMegabyte);
  }
  fmt::print("  activations and workspaces  {:10.1f} MB\n", static_cast<double>(e.plan().activation_bytes) / kMegabyte);
  fmt::print("size of a checkpoint: about {:.1f} MB; checkpoint.keep = {} of them and one being written: {:.1f} MB\n",
             megabytes(trained + statistics + slots * trained + averages), config.checkpoint.keep,
             megabytes((trained + statistics + slots * trained + averages) * (config.checkpoint.keep + 1)));
}

// The moment of a step at which most memory is in use, and what uses it.
void print_peak(const Executable& e, const Backend& backend) {
  std::vector<size_t> storage, workspaces;
  for (const Value& v : e.graph().values) storage.push_back(backend.storage_bytes(v.desc));
  for (size_t p = 0; p < e.schedule().order.size(); ++p) workspaces.push_back(e.kernel(p).workspace_bytes());
  const MemoryPeak peak = find_peak({e.graph(), e.schedule(), e.layout(), storage, workspaces}, e.plan());
  const NodeId fullest = e.schedule().order[peak.position];
  fmt::print("  the fullest of {} kernels is {}, with {:.1f} MB in use:\n", workspaces.size(),
             e.graph().node(fullest).name, static_cast<double>(peak.bytes) / kMegabyte);
  for (size_t i = 0; i < std::min(peak.parts.size(), kPeakParts); ++i) {
    const MemoryPeak::Part& part = peak.parts[i];
    fmt::print("    {:26}{:10.1f} MB\n", part.value < 0 ? "workspace" : e.graph().value(part.value).name,
               static_cast<double>(part.bytes) / kMegabyte);
  }
}

void print_convolutions(const Executable& e) {
  std::map<std::string, size_t> kernels;  // by implementation
  for (size_t p = 0; p < e.schedule().order.size(); ++p) {
    const bool convolution =
        std::visit(Overload{[](const OneOf<Conv2d, Conv2dGradInput, Conv2dGradWeights> auto&) { return true; },
                            [](const auto&) { return false; }},
                   e.graph().node(e.schedule().order[p]).op);
    if (convolution) ++kernels[e.kernel(p).implementation()];
  }
  if (kernels.empty()) return;
  fmt::print("\nconvolutions and their gradients:\n");
  for (const auto& [implementation, count] : kernels) fmt::print("  {:<26}{:>6}\n", implementation, count);
}

// Lists where the learning rate changes, by epoch, or by step if the length of the run is given in steps. The number of
// steps of an epoch is unknown without the data, but affects the rate at its start only by rounding.
void print_schedule(const Config& config, const BatchSizes& batches) {
  constexpr int64_t kMostRows = 20;
  fmt::print("\nlearning rate: {}{}, schedule {}\n", base_learning_rate(config.optimizer, batches.global),
             config.optimizer.scale_lr
                 ? fmt::format(" (optimizer.lr = {} x global batch of {} / 256)", config.optimizer.lr, batches.global)
                 : std::string(),
             word(config.schedule.name));
  const bool by_epoch = config.train.epochs > 0;
  const ScheduleKind name = config.schedule.name;
  const bool counts_epochs =
      config.schedule.warmup_epochs > 0 ||
      (name != ScheduleKind::constant && name != ScheduleKind::cosine && name != ScheduleKind::linear);
  if (!by_epoch && counts_epochs) {
    fmt::print("  by epoch: the length of an epoch, and so the run's in epochs, depends on the data\n");
    return;
  }
  constexpr int64_t kStepsPerEpoch = 1'000'000;
  const int64_t scale = by_epoch ? kStepsPerEpoch : 1;
  const auto length = by_epoch ? static_cast<int64_t>(std::ceil(config.train.epochs)) : config.train.steps;
  const auto total = by_epoch ? static_cast<int64_t>(config.train.epochs * kStepsPerEpoch) : config.train.steps;
  const LearningRateSchedule schedule = make_learning_rate_schedule(
      config, {.samples_per_epoch = scale * batches.global, .global_batch = batches.global, .total_steps = total});
  const int64_t stride = (length + kMostRows - 1) / kMostRows;
  double printed = -1;
  for (int64_t at = 0; at < length; at += stride) {
    const double rate = schedule.rate(at * scale);
    if (rate == printed) continue;
    fmt::print("  from {} {:>6}  {:.6g}\n", by_epoch ? "epoch" : "step", at, rate);
    printed = rate;
  }
}

// Says how a launcher should place ranks on hosts like this one, and whether this process may use all of it.
void print_placement() {
  const std::vector<Processor> host = processors_of_job();
  if (host.empty()) return;
  const int cores = count_cores(host), nodes = count_nodes(host);
  fmt::print("\nhosts like this one ({}, {}):\n", counted(cores, "core"), counted(nodes, "NUMA node"));
  fmt::print("  one rank per core:      {}\n", placement_options(host, cores, 1));
  fmt::print("  one rank per NUMA node: {}\n", placement_options(host, nodes, 1));
  const auto usable = static_cast<size_t>(usable_cores(cpu_cores()));
  if (usable < host.size()) fmt::print("  this process may use {} of {} processors\n", usable, host.size());
}

// Lists the parts of batch norms that convolutions compute on the GPU of this process, and how many plans would be
// timed.
void print_gpu_convolutions(const Config& config, const Graph& drawn) {
  const std::string& reason = gpu_unavailable_reason();
  if (config.device.kind == DeviceChoice::cpu) return;
  if (config.device.kind == DeviceChoice::automatic && !reason.empty()) return;
  if (!reason.empty()) {
    fmt::print("\nconvolutions fused with batch norms on a GPU: unknown ({})\n", reason);
    return;
  }
  const auto gpu = make_backend("cuda", {.tf32 = config.train.precision == Precision::tf32});
  const Executable e = Executable::compile(drawn, *gpu, training_options(config, 2, *gpu));
  if (PlanTuning* const plans = gpu->plan_tuning(); plans && new_plans(config).timed) {
    const PlanTuning::Result result = plans->result();
    fmt::print("\ntune | {} of {} in a step on this GPU: a run times the first plans of each shape at its start\n",
               counted(result.kernels, "convolution"), counted(result.shapes, "shape"));
  }
  const std::vector<ConvolutionFusion> fusions = convolution_fusions(e.graph());
  if (fusions.empty()) return;
  fmt::print("\nof {} on this GPU, {} sum for the batch norm behind them, {} normalize their image\n",
             counted(fusions.size(), "convolution"), std::ranges::count(fusions, true, &ConvolutionFusion::sums),
             std::ranges::count(fusions, true, &ConvolutionFusion::normalizes));
  for (const ConvolutionFusion& fusion : fusions) {
    if (!fusion.why_not.empty()) fmt::print("  {:<40} {}\n", fusion.layer, fusion.why_not);
  }
}

// Names the faster precision if this processor has it and most of the time goes into layers, not into memory or tables.
void print_faster_precision(const Config& config, double million_multiply_adds) {
  constexpr double kWorthwhile = 1;
  const bool on_cpu = config.device.kind == DeviceChoice::cpu || !gpu_unavailable_reason().empty();
  if (!on_cpu || !cpu_computes_bf16() || config.train.precision != Precision::float32) return;
  if (million_multiply_adds < kWorthwhile) return;
  fmt::print("\nfaster: train.precision = \"bf16\", for which this processor has instructions\n");
}

// The threads are those of a single rank on this host; the workspaces of convolutions depend on their number.
BackendOptions one_rank_of_this_host(const Config& config) {
  const auto threads = static_cast<int>(config.device.threads);
  return {.threads = threads > 0 ? threads : usable_cores(cpu_cores()), .winograd = config.device.winograd};
}

}  // namespace

int dump_config_command(const CommandLine& command) {
  const LoadedConfig loaded = load_config(gather_config_sources(command.config, command.overrides, read_definition));
  const std::string text = to_loadable_toml(loaded);
  if (command.to == "-") {
    fmt::print("{}", text);
  } else {
    write_text_atomically(command.to, text, ExitCode::config);
  }
  return 0;
}

int explain_command(const CommandLine& command) {
  const LoadedConfig loaded = load_config(gather_config_sources(command.config, command.overrides, read_definition));
  const Config& config = loaded.config;
  fmt::print("{}", printable_lines(to_toml(loaded)));

  const auto backend = make_backend("cpu", one_rank_of_this_host(config));
  const BatchSizes batches = batch_sizes(config, 1);
  const int64_t batch = batches.per_rank;
  const Graph drawn = training_graph(config, batch);
  if (is_onnx(config.model.file)) fmt::print("\n{}", printable_lines(config.model.definition));
  print_layers(drawn, rate_factors(drawn.parameters, config.optimizer));
  CompileOptions options = training_options(config, 1, *backend);
  if (options.compute != DType::bf16 || !cpu_computes_bf16()) options.compute = DType::f32;
  const Executable e = Executable::compile(drawn, *backend, options);
  const auto million = [&](int64_t count) { return static_cast<double>(count) / static_cast<double>(batch) * 1e-6; };
  const double forward = million(forward_multiply_adds(drawn));
  const int64_t frozen = drawn.parameters.frozen_elements();
  fmt::print(
      "\n{}: {} trained parameters{}, {:.1f} million multiply-adds forward for one image, {:.1f} million backward\n",
      config.model.name, drawn.parameters.trained_elements(), frozen > 0 ? fmt::format(" and {} frozen", frozen) : "",
      forward, million(backward_multiply_adds(e)));
  for (const auto& [name, matches] : e.applied_rewrites()) fmt::print("rewrite {}: {} places\n", name, matches);
  print_memory(config, e, batches);
  print_peak(e, *backend);
  print_convolutions(e);
  print_gpu_convolutions(config, drawn);
  print_schedule(config, batches);
  print_placement();
  print_faster_precision(config, forward);
  for (const std::string& warning : loaded.warnings) fmt::print("\nwarning: {}\n", warning);
  for (const std::string& setting : settings_without_effect(loaded)) fmt::print("\nno effect: {}\n", setting);
  for (const std::string& choice : unusual_choices(config, batches.global)) fmt::print("\nunusual: {}\n", choice);
  return 0;
}

}  // namespace lockstep
