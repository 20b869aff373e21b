// The model of a run, compiled for one rank: the training graph, the evaluation graph that reads the same arenas, and
// the arenas.
#pragma once

#include <optional>
#include <span>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/model_state.h"
#include "lockstep/config/config.h"
#include "lockstep/graph/executable.h"
#include "lockstep/graph/model_builder.h"

namespace lockstep {

// The model section of the configuration for a graph of `batch_size` samples.
ModelOptions model_options(const Config& config, int64_t batch_size, bool training);

// The element type in which train.precision has layers compute.
DType compute_type(const Config& config);

// Samples of one forward pass on this rank.
struct ModelBatches {
  int64_t training = 1;
  int64_t evaluation = 1;
  int ranks = 1;        // that train together: synchronized batch norm
  int local_ranks = 1;  // on this host, whose memory they share
};

enum class Purpose : uint8_t {
  train,
  evaluate,  // no training graph, no gradients, no optimizer slots
};

// Owned by main; backend and stream must outlive it.
class CompiledModel {
 public:
  // Throws Error(config) when there is not enough memory.
  CompiledModel(const Config& config, const ModelBatches& batches, Purpose purpose, const Backend& backend,
                Stream& stream);

  const Executable& training() const { return *training_; }  // Purpose::train
  const Executable& evaluation() const { return *evaluation_; }
  const Backend& backend() const { return backend_; }
  const ModelBatches& batches() const { return batches_; }
  const ModelState& state() const { return state_; }
  // Zeroed memory of the same size for the gradients, for a place that suits their sums. Before anything uses theirs.
  void place_gradients(Buffer memory);
  // All parameters and statistics, the auxiliary head's too: the schema of the checkpoints.
  const ParameterTable& parameters() const { return table_; }
  const ParameterLayout& layout() const { return layout_; }
  // The elements of one parameter or statistic in its arena, which must be addressable by the host.
  std::span<float> parameter(ParameterId id, Weights weights = Weights::raw) const {
    return parameter_in(state_, id, weights);
  }
  // The same in other arenas of this layout.
  std::span<float> parameter_in(const ModelState& arenas, ParameterId id, Weights weights) const;

  Arenas training_arenas() const;
  Arenas evaluation_arenas(Weights weights) const;

 private:
  void allocate(const Config& config, Stream& stream, const ModelStateOptions& options);

  const Backend& backend_;
  ModelBatches batches_;
  ParameterTable table_;
  ParameterLayout layout_;
  std::optional<Executable> training_, evaluation_;
  ModelState state_;
};

}  // namespace lockstep
