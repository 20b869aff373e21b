#include <fmt/format.h>

#include <cstdio>

#include "app/commands.h"
#include "lockstep/backend/backend.h"
#include "lockstep/backend/update.h"
#include "lockstep/graph/executable.h"
#include "lockstep/models/models.h"
#include "lockstep/train/config_load.h"
#include "lockstep/train/config_sources.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/train/program.h"

namespace lockstep {
namespace {

constexpr double kMegabyte = 1e6;

int64_t forward_multiply_adds(const Graph& graph) {
  int64_t sum = 0;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::forward)
      sum += multiply_adds(node.op, graph.descs(node.inputs), graph.descs(node.outputs));
  }
  return sum;
}

void print_layers(const Graph& graph) {
  fmt::print("\n{:<40} {:<22} {:>20} {:>14}\n", "layer", "operation", "output", "mult-adds");
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::forward) continue;
    const auto outputs = graph.descs(node.outputs);
    fmt::print("{:<40} {:<22} {:>20} {:>14}\n", node.name, op_name(node.op), outputs[0].shape.to_string(),
               multiply_adds(node.op, graph.descs(node.inputs), outputs));
  }
}

void print_memory(const Config& config, const Executable& e) {
  const int64_t trained = e.layout().trained_elements, statistics = e.layout().statistic_elements;
  const auto slots = static_cast<int64_t>(optimizer_slots(parse_optimizer(config.optimizer.name)).slots.size());
  const int64_t averages = config.ema.decay > 0 ? trained + statistics : 0;
  const auto megabytes = [](int64_t elements) { return static_cast<double>(elements) * sizeof(float) / kMegabyte; };
  fmt::print("\nmemory of one rank (batch of {}):\n", config.train.batch_size);
  fmt::print("  parameters and statistics   {:10.1f} MB\n", megabytes(trained + statistics));
  fmt::print("  gradients and moments       {:10.1f} MB\n", megabytes(trained + statistics));
  fmt::print("  optimizer slots ({})         {:10.1f} MB\n", slots, megabytes(slots * trained));
  fmt::print("  averages                    {:10.1f} MB\n", megabytes(averages));
  fmt::print("  activations and workspaces  {:10.1f} MB\n", static_cast<double>(e.plan().activation_bytes) / kMegabyte);
  fmt::print("size of a checkpoint: about {:.1f} MB; checkpoint.keep = {} of them and one being written: {:.1f} MB\n",
             megabytes(trained + statistics + slots * trained + averages), config.checkpoint.keep,
             megabytes((trained + statistics + slots * trained + averages) * (config.checkpoint.keep + 1)));
}

}  // namespace

int explain_command(const CommandLine& command) {
  const LoadedConfig loaded = load_config(gather_config_sources(command.config, command.overrides));
  const Config& config = loaded.config;
  fmt::print("{}", to_toml(loaded));

  const auto backend = make_backend("cpu", {});
  const Graph drawn = build_model(config.model.name, model_options(config, config.train.batch_size, true));
  print_layers(drawn);
  const int64_t batch = config.train.batch_size;
  fmt::print("\n{}: {} trained parameters, {:.1f} million multiply-adds forward for one image\n", config.model.name,
             drawn.parameters.trained_elements(),
             static_cast<double>(forward_multiply_adds(drawn)) / static_cast<double>(batch) * 1e-6);
  const Executable e = Executable::compile(drawn, *backend, {.rewrites = config.graph.rewrites});
  for (const auto& [name, places] : e.applied_rewrites()) fmt::print("rewrite {}: {} places\n", name, places);
  print_memory(config, e);
  return 0;
}

}  // namespace lockstep
