#include "lockstep/train/model_graphs.h"

#include <optional>
#include <vector>

#include "lockstep/config/model_info.h"
#include "lockstep/data/image/augment.h"
#include "lockstep/models/models.h"
#include "lockstep/train/optimizer.h"

namespace lockstep {
namespace {

// Marks the parameters with a factor of 0 (optimizer.lr_factors) in a graph that has some of the parameters of `table`.
void mark_zero_rates(Graph& graph, const ParameterTable& table, const Config::Optimizer& optimizer) {
  const std::vector<double> factors = rate_factors(table, optimizer);
  for (ParameterId id = 0; id < graph.parameters.size(); ++id) {
    const ParameterId same = table.find(graph.parameters[id].name);
    if (factors[static_cast<size_t>(same)] == 0) graph.parameters.set_zero_rate(id);
  }
}

// Returns the part of the loader's work that the graph does, on bytes; nothing if the loader does all of it: on a CPU,
// and for HDF5 files, which may hold floats. All ranks decide alike.
std::optional<PreparePixels> device_part(const Config& config, bool training, const Backend& backend) {
  const bool sparse = model_info(config.model.name).sparse;
  if (sparse || backend.host_addressable() || config.data.format == "hdf5") return std::nullopt;
  const TransformOptions options{.augment = *parse_augment(config.data.augment),
                                 .normalize = *parse_normalize(config.data.normalize),
                                 .transform_input = config.model.transform_input,
                                 .image_size = config.model.image_size,
                                 .training = training};
  const PreparePixels part = Transform(options).device_part();
  const TensorDesc pixels{{1, options.image_size, options.image_size, 3}, DType::u8, {}};
  std::vector<TensorDesc> inputs{pixels};
  if (part.changes) inputs.push_back({{1, kImageChanges}, DType::f32, {}});
  if (!backend.can(part, inputs, infer(part, inputs))) return std::nullopt;
  return part;
}

}  // namespace

ModelOptions model_options(const Config& config, int64_t batch_size, bool training) {
  return {.batch_size = batch_size,
          .image_size = config.model.image_size,
          .classes = config.model.classes,
          .training = training,
          .aux_weight = config.model.aux_weight,
          .dropout = config.model.dropout,
          .label_smoothing = training ? config.train.label_smoothing : 0,
          .bn_epsilon = config.model.bn_epsilon,
          .bn_scale = config.model.bn_scale,
          .mixed_7c_max_pool = config.model.mixed_7c_pool == BranchPool::max,
          .hidden = config.model.hidden,
          .vocabulary = config.model.vocabulary,
          .max_ids = config.model.max_ids,
          .freeze = config.train.freeze,
          .freeze_batch_norm = config.train.freeze_batch_norm,
          .definition = config.model.definition,
          .definition_path = config.model.file.empty() ? "model.definition" : config.model.file};
}

DType compute_type(const Config& config) {
  if (config.train.precision == Precision::bf16) return DType::bf16;
  return config.train.precision == Precision::fp16 ? DType::f16
                                                   : DType::f32;  // tf32 is only a mode in which GPUs multiply float32
}

Graph training_graph(const Config& config, int64_t batch_size) {
  Graph graph = build_model(config.model.name, model_options(config, batch_size, true));
  mark_zero_rates(graph, graph.parameters, config.optimizer);
  return graph;
}

Graph evaluation_graph(const Config& config, int64_t batch_size, const ParameterTable& training) {
  Graph graph = build_model(config.model.name, model_options(config, batch_size, false));
  mark_zero_rates(graph, training, config.optimizer);
  return graph;
}

CompileOptions training_options(const Config& config, int ranks, const Backend& backend) {
  return {.rewrites = config.graph.rewrites,
          .synchronized_ranks = config.train.sync_batch_norm ? ranks : 1,
          .compute = compute_type(config),
          .pixels = device_part(config, true, backend),
          .recompute_convolutions = config.graph.recompute == RecomputeChoice::convolutions};
}

CompileOptions evaluation_options(const Config& config, const ParameterLayout& layout, const Backend& backend) {
  return {.rewrites = config.graph.rewrites,
          .training = false,
          .compute = compute_type(config),
          .pixels = device_part(config, false, backend),
          .layout = &layout};
}

}  // namespace lockstep
