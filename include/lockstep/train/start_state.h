// Prepares the initial state of a run: fresh, from the weights of another run, or resumed from a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/exchange/onnx_import.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/rank_context.h"

namespace lockstep {

// Identifies a data set by its size and a hash of some of its records.
struct DataIdentity {
  int64_t samples = 0;
  uint64_t digest = 0;
  bool operator==(const DataIdentity&) const = default;
};

struct StartState {
  Progress progress;
  std::string resumed_from;               // path of the checkpoint; empty for a fresh start
  bool in_run_directory = false;          // resumed_from is in this run's own directory
  std::vector<std::string> classes = {};  // names of the outputs, from the data or otherwise from the checkpoint
  int64_t changes = 0;                    // number of settings that differ from the run that is continued
};

// Collective. Only rank 0 chooses the state and reads it; all ranks receive its arenas and compare them. Throws
// AgreedError: config (2) if a file does not match the model or a fresh start would overwrite checkpoints, data (3) if
// the previous run had other classes, checkpoint (5) if there are files but none is intact. `classes` are the names of
// the outputs from the data, empty if unknown. The training data are not compared if `data` has no samples. `onnx`: an
// ONNX model.file that rank 0 has read, whose weights are then moved from; null: it is read if it is needed.
StartState prepare_start(const RankContext& rank, const std::vector<std::string>& classes = {},
                         const DataIdentity& data = {}, OnnxModel* onnx = nullptr);

// Collective. Deletes the checkpoints that checkpoint.overwrite discards for this start. Call it only when no later
// check can still reject the start.
void delete_given_up(const RankContext& rank, const StartState& start);

// Collective. Starts with initial values or those of checkpoint.init_from; checkpoint.directory is not read.
StartState start_afresh(const RankContext& rank);

// Collective. Rolls the run back to the newest intact checkpoint of its directory: weights, slots, statistics and
// averages on all ranks. Throws AgreedError(numerics) if there is none.
StartState return_to_checkpoint(const RankContext& rank);

struct LoadedWeights {
  int64_t step = 0;
  double epoch = 0;
  bool has_average = false;
  std::vector<std::string> classes;  // the class names in the checkpoint
};

// Collective. Loads the weights of a checkpoint, and its averages if file and configuration have them. `checkpoint` is
// a path, or "latest" in checkpoint.directory. Throws AgreedError as prepare_start() does. Data with only some of the
// checkpoint's classes are accepted; the caller must then make them use the checkpoint's labels
// (DataSource::follow_classes).
LoadedWeights load_for_evaluation(const RankContext& rank, const std::vector<std::string>& classes,
                                  const std::string& checkpoint);

}  // namespace lockstep
