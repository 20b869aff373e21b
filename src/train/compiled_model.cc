#include "lockstep/train/compiled_model.h"

#include <algorithm>
#include <string>

#include "lockstep/backend/out_of_memory.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host_memory.h"
#include "lockstep/config/model_info.h"
#include "lockstep/train/model_graphs.h"
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

}  // namespace

CompiledModel::CompiledModel(const Config& config, const ModelBatches& batches, Purpose purpose, const Backend& backend,
                             Stream& stream)
    : backend_(backend), batches_(batches) {
  // An evaluation also builds the training graph, but only for its parameters. Two samples are enough for every batch
  // norm.
  Graph graph = training_graph(config, purpose == Purpose::train ? batches.training : 2);
  table_ = graph.parameters;
  int64_t activations = 0, copies = 0;
  if (purpose == Purpose::train) {
    training_ = Executable::compile(std::move(graph), backend, training_options(config, batches.ranks, backend));
    layout_ = training_->layout();
    activations = training_->plan().activation_bytes;
    copies = training_->plan().copy_bytes;
  } else {
    // The evaluation graph needs the same parameters to be adjacent.
    if (config.graph.rewrites) apply_rewrites(graph, backend);
    layout_ = lay_out_parameters(table_, trained_in_table_order(table_), graph.adjacent_parameters);
  }
  Graph evaluation = evaluation_graph(config, batches.evaluation, table_);
  const ParameterLayout layout = adopt_layout(evaluation.parameters, table_, layout_);
  const CompileOptions options = evaluation_options(config, layout, backend);
  takes_pixels_ = options.pixels.has_value();
  evaluation_ = Executable::compile(std::move(evaluation), backend, options);
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
