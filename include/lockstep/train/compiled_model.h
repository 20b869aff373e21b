// The model of a run, compiled for one rank: the training graph, the evaluation graph, and the arenas that both use.
#pragma once

#include <optional>
#include <span>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/model_state.h"
#include "lockstep/config/config.h"
#include "lockstep/graph/executable.h"

namespace lockstep {

// The numbers of samples of one forward pass on this rank, and the numbers of ranks.
struct ModelBatches {
  int64_t training = 1;
  int64_t evaluation = 1;
  int ranks = 1;        // number of ranks that train together, for synchronized batch norm
  int local_ranks = 1;  // number of ranks on this host, which share its memory
};

enum class Purpose : uint8_t {
  train,
  evaluate,  // no training graph, no gradients, no optimizer slots
};

// Owned by main; the backend and the stream must outlive it.
class CompiledModel {
 public:
  // Throws Error(config) if there is not enough memory.
  CompiledModel(const Config& config, const ModelBatches& batches, Purpose purpose, const Backend& backend,
                Stream& stream);

  const Executable& training() const { return *training_; }  // only for Purpose::train
  const Executable& evaluation() const { return *evaluation_; }
  const Backend& backend() const { return backend_; }
  const ModelBatches& batches() const { return batches_; }
  // Whether the graphs do a part of the loader's work, on bytes (CompileOptions::pixels).
  bool takes_pixels() const { return takes_pixels_; }
  const ModelState& state() const { return state_; }
  // Replaces the memory of the gradients by zeroed memory of the same size, for instance shared memory for the
  // all-reduce. Must be called before anything uses the gradients.
  void place_gradients(Buffer memory);
  // All parameters and statistics, including those of the auxiliary head. They are the schema of checkpoints.
  const ParameterTable& parameters() const { return table_; }
  const ParameterLayout& layout() const { return layout_; }
  // Returns the elements of one parameter or statistic in its arena, which the host must be able to address.
  std::span<float> parameter(ParameterId id, Weights weights = Weights::raw) const {
    return parameter_in(state_, id, weights);
  }
  // Returns the same in other arenas with this layout.
  std::span<float> parameter_in(const ModelState& arenas, ParameterId id, Weights weights) const;

  Arenas training_arenas() const;
  Arenas evaluation_arenas(Weights weights) const;

 private:
  void allocate(const Config& config, Stream& stream, const ModelStateOptions& options);

  const Backend& backend_;
  ModelBatches batches_;
  bool takes_pixels_ = false;
  ParameterTable table_;
  ParameterLayout layout_;
  std::optional<Executable> training_, evaluation_;
  ModelState state_;
};

}  // namespace lockstep
