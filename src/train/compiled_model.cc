#include "lockstep/train/compiled_model.h"

#include <algorithm>
#include <string>

#include "lockstep/backend/out_of_memory.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host_memory.h"
#include "lockstep/config/model_info.h"
#include "lockstep/data/image/augment.h"
#include "lockstep/models/models.h"
#include "lockstep/train/optimizer.h"

namespace lockstep {
namespace {

// The memory of one rank's model in bytes.
struct MemoryNeed {
  int64_t state = 0;        // parameters, gradients, optimizer slots, averages
  int64_t activations = 0;  // including workspaces
  int64_t sum() const { return state + activations; }
};

std::string size_text(int64_t bytes) {
  constexpr int64_t kMegabyte = 1'000'000, kGigabyte = 1'000'000'000;
  if (bytes < kMegabyte) return fmt::format("{} bytes", bytes);
  return bytes < kGigabyte ? fmt::format("{:.1f} MB", static_cast<double>(bytes) / kMegabyte)
                           : fmt::format("{:.1f} GB", static_cast<double>(bytes) / kGigabyte);
}

// Returns the keys that lower the need, with their values.
std::string keys_to_lower(const Config& config, const ModelBatches& batches, bool gpu) {
  std::string keys;
  const auto add = [&](const std::string& key) { keys += (keys.empty() ? "" : ", ") + key; };
  if (batches.evaluation > batches.training) {
    add(fmt::format("eval.batch_size ({})", batches.evaluation));
  } else if (config.train.global_batch > 0) {
    add(fmt::format("train.global_batch ({})", config.train.global_batch));
  } else {
    add(fmt::format("train.batch_size ({})", batches.training));
  }
  if (!model_info(config.model.name).sparse) add(fmt::format("model.image_size ({})", config.model.image_size));
  // Most CPUs compute only in float32.
  const bool full = config.train.precision == Precision::float32 || config.train.precision == Precision::tf32;
  if (gpu && full) add(fmt::format("train.precision ({}; bf16 halves activations)", word(config.train.precision)));
  return keys;
}

[[noreturn]] void fail_too_large(const Config& config, const ModelBatches& batches, const MemoryNeed& need,
                                 const OutOfMemory& error, bool gpu) {
  const std::string all_ranks = batches.local_ranks > 1 ? fmt::format(", {} ranks of this host {}", batches.local_ranks,
                                                                      size_text(batches.local_ranks * need.sum()))
                                                        : std::string();
  const std::string there = error.available_bytes() < 0
                                ? fmt::format("there is not so much {}", error.kind())
                                : fmt::format("there are {} of {}", size_text(error.available_bytes()), error.kind());
  fail(ExitCode::config,
       "the model does not fit in {}: a rank needs {} ({} for activations, {} for parameters, gradients and "
       "optimizer){}, "
       "and {}; lower {}, or start fewer ranks on a host; 'trainer explain' lists what takes the memory",
       error.kind(), size_text(need.sum()), size_text(need.activations), size_text(need.state), all_ranks, there,
       keys_to_lower(config, batches, gpu));
}

// Marks the parameters with a factor of 0 (optimizer.lr_factors) in a graph that has some of the parameters of `table`.
void mark_zero_rates(Graph& graph, const ParameterTable& table, const std::vector<double>& factors) {
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

CompiledModel::CompiledModel(const Config& config, const ModelBatches& batches, Purpose purpose, const Backend& backend,
                             Stream& stream)
    : backend_(backend), batches_(batches) {
  const bool rewrites = config.graph.rewrites;
  const DType compute = compute_type(config);
  // An evaluation also builds the training graph, but only for its parameters. Two samples are enough for every batch
  // norm.
  const int64_t drawn_batch = purpose == Purpose::train ? batches.training : 2;
  Graph graph = build_model(config.model.name, model_options(config, drawn_batch, true));
  takes_pixels_ = device_part(config, false, backend).has_value();
  const std::vector<double> factors = rate_factors(graph.parameters, config.optimizer);
  mark_zero_rates(graph, graph.parameters, factors);
  table_ = graph.parameters;
  int64_t activations = 0, copies = 0;
  if (purpose == Purpose::train) {
    training_ =
        Executable::compile(std::move(graph), backend,
                            {.rewrites = rewrites,
                             .synchronized_ranks = config.train.sync_batch_norm ? batches.ranks : 1,
                             .compute = compute,
                             .pixels = device_part(config, true, backend),
                             .recompute_convolutions = config.graph.recompute == RecomputeChoice::convolutions});
    layout_ = training_->layout();
    activations = training_->plan().activation_bytes;
    copies = training_->plan().copy_bytes;
  } else {
    if (rewrites) apply_rewrites(graph, backend);  // the evaluation graph needs the same parameters to be adjacent
    layout_ = lay_out_parameters(table_, trained_in_table_order(table_), graph.adjacent_parameters);
  }
  Graph evaluation = build_model(config.model.name, model_options(config, batches.evaluation, false));
  mark_zero_rates(evaluation, table_, factors);
  const ParameterLayout layout = adopt_layout(evaluation.parameters, table_, layout_);
  evaluation_ = Executable::compile(std::move(evaluation), backend,
                                    {.rewrites = rewrites,
                                     .training = false,
                                     .compute = compute,
                                     .pixels = device_part(config, false, backend),
                                     .layout = &layout});
  activations = std::max(activations, evaluation_->plan().activation_bytes);
  allocate(config, stream,
           {.optimizer = parse_optimizer(config.optimizer.name),
            .training = purpose == Purpose::train,
            .average = config.ema.decay > 0,
            .initial_accumulator = config.optimizer.initial_accumulator,
            .activation_bytes = static_cast<size_t>(activations),
            .copy_bytes = static_cast<size_t>(copies)});
}

void CompiledModel::allocate(const Config& config, Stream& stream, const ModelStateOptions& options) {
  const int64_t activations = options.activation_bytes;
  const MemoryNeed need{.state = static_cast<int64_t>(model_state_bytes(layout_, options)) - activations,
                        .activations = activations};
  ModelBatches asked = batches_;
  if (!options.training && config.eval.batch_size > 0) asked.training = 0;  // so that the message names eval.batch_size
  const bool gpu = !backend_.host_addressable();
  // If all ranks of the host together need more than its memory, the kernel's OOM killer would end one of them. A
  // smaller need is accepted, because it is not certain to fail.
  const int64_t host_bytes = gpu ? -1 : host_memory().total;
  if (host_bytes >= 0 && need.sum() > host_bytes / asked.local_ranks) {
    fail_too_large(config, asked, need, OutOfMemory("memory", need.sum(), host_bytes), gpu);
  }
  try {
    state_ = make_model_state(backend_, stream, layout_, options);
  } catch (const OutOfMemory& error) {
    fail_too_large(config, asked, need, error, gpu);
  }
}

void CompiledModel::place_gradients(Buffer memory) {
  require(memory.bytes() == state_.gradients.bytes(), "{} bytes for {} bytes of gradients", memory.bytes(),
          state_.gradients.bytes());
  state_.gradients = std::move(memory);
}

std::span<float> CompiledModel::parameter_in(const ModelState& arenas, ParameterId id, Weights weights) const {
  const Parameter& p = table_[id];
  const bool raw = weights == Weights::raw;
  const Buffer& arena = p.trained() ? (raw ? arenas.parameters : arenas.average_parameters)
                                    : (raw ? arenas.statistics : arenas.average_statistics);
  return {arena.as<float>() + layout_.offset[id], static_cast<size_t>(p.shape.elements())};
}

Arenas CompiledModel::training_arenas() const {
  return {.parameters = state_.parameters.data(),
          .copies = state_.copies.data(),
          .statistics = state_.statistics.data(),
          .gradients = state_.gradients.data(),
          .activations = state_.activations.data()};
}

Arenas CompiledModel::evaluation_arenas(Weights weights) const {
  const bool average = weights == Weights::average;
  return {.parameters = (average ? state_.average_parameters : state_.parameters).data(),
          .statistics = (average ? state_.average_statistics : state_.statistics).data(),
          .activations = state_.activations.data()};
}

}  // namespace lockstep
