// The state a run starts from: fresh, from another run's weights, or where it stopped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/transport/communicator.h"
#include "lockstep/config/config.h"
#include "lockstep/train/compiled_model.h"
#include "lockstep/train/progress.h"

namespace lockstep {

// Tells a data set from another: its size, and a hash of some of its records.
struct DataIdentity {
  int64_t samples = 0;
  uint64_t digest = 0;
  bool operator==(const DataIdentity&) const = default;
};

struct StartParts {
  const Config& config;
  ProcessGroup& group;
  Communicator& communicator;
  Stream& stream;
  const CompiledModel& model;
  std::vector<std::string> classes = {};  // names of the outputs, as the data have them; empty: not known
  DataIdentity data = {};                 // of the training data; no samples: not compared
};

struct StartState {
  Progress progress;
  std::string resumed_from;               // path; empty: a fresh start
  bool in_run_folder = false;             // resumed_from is a file of this run's own folder
  std::vector<std::string> classes = {};  // names of the outputs: the data's, or else the file's
  int64_t changes = 0;                    // settings in which this run differs from the one it continues
};

// The loss scale with which a run in half precision begins, a power of two. Losses are summed over the `batch` of a
// rank, and a sample's gradient by its logits is at most 1: so the largest sum over a batch, that of a bias, is not
// infinite.
double first_loss_scale(int64_t batch);

// Collective. Rank 0 alone decides what to start from and reads it; all ranks get its arenas and compare them. Throws
// AgreedError: config (2) when a file does not fit the model or a fresh start would overwrite, data (3) when the run
// before had other classes, checkpoint (5) when there are files but none is whole.
StartState prepare_start(const StartParts& parts);

// Collective. Deletes the checkpoints that checkpoint.overwrite gives up for this start; to be called when nothing can
// refuse it any more.
void delete_given_up(const StartParts& parts, const StartState& start);

// Collective. Start values, or those of checkpoint.init_from, whatever checkpoint.directory holds: it is not looked at.
StartState start_afresh(const StartParts& parts);

// Collective. Takes the run back to the newest whole checkpoint of its folder: weights, slots, statistics and averages
// on all ranks. Throws AgreedError(numerics) when there is none.
StartState return_to_checkpoint(const StartParts& parts);

struct LoadedWeights {
  int64_t step = 0;
  double epoch = 0;
  bool has_average = false;
  std::vector<std::string> classes;  // that the checkpoint names
};

// Collective. The weights (and averages, where file and configuration have them) of a checkpoint: a path, or "latest"
// in checkpoint.directory. Throws AgreedError as prepare_start does. Data with fewer classes than the checkpoint pass,
// and have to follow its classes.
LoadedWeights load_for_evaluation(const StartParts& parts, const std::string& checkpoint);

// Rank 0's parameters, statistics, slots and averages to all ranks.
void broadcast_state(const StartParts& parts);

}  // namespace lockstep
