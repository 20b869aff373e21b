// The progress of a run between two steps, and how a checkpoint stores it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/config/config.h"

namespace lockstep {

// The loss scale of train.precision = "fp16"; 1 for other precisions.
struct LossScale {
  double value = 1;
  int64_t steady_steps = 0;  // number of updates since the value last changed
};

// The best checkpoint so far, if checkpoint.keep_best is set.
struct BestSave {
  double score = -1;  // score of the evaluation at its step; -1: unknown
  int64_t step = -1;  // -1 if there is no best checkpoint
};

// The best evaluation so far, if eval.patience_epochs is set.
struct BestEvaluation {
  double score = -1;  // -1: there was none
  int64_t position = 0;
};

// The same on every rank, and independent of how the global sample stream is divided among ranks.
struct Progress {
  int64_t step = 0;
  int64_t position = 0;  // samples of the global stream consumed so far
  int64_t updates = 0;   // number of steps that changed the weights, without skipped steps
  LossScale loss_scale;
  BestEvaluation best_evaluation;
  BestSave best;  // of the checkpoint that the run continues; later the checkpointer of rank 0 tracks it
};

// Returns the initial loss scale of a run in half precision, a power of two. Losses are summed over the `batch` of a
// rank, and the gradient of a sample with respect to its logits is at most 1. The scale is chosen so that the largest
// sum over a batch, the gradient of a bias, does not overflow.
double first_loss_scale(int64_t batch);

// Returns the progress at step 0. `batch` is the number of samples per rank.
Progress first_progress(const Config& config, int64_t batch);

// Reads a number that a checkpoint stores under /training into `to`. Returns false, and leaves `to` as it is, if there
// is no number of this name and type.
template <class T>
bool read_number(const std::map<std::string, TrainingValue>& training, const std::string& name, T& to) {
  const auto found = training.find(name);
  const T* value = found == training.end() ? nullptr : std::get_if<T>(&found->second);
  if (value) to = *value;
  return value != nullptr;
}

// Returns the numbers that a checkpoint stores under /training. The step is in its header.
std::map<std::string, TrainingValue> to_training(const Progress& progress, const Config& config);

// Reads them again. Without loss scaling in this run or the previous one, the loss scale is that of first_progress(),
// which soon adapts. Throws Error(checkpoint) if the position or the number of updates is missing.
Progress progress_in(const CheckpointReader& file, const Config& config, int64_t batch);

}  // namespace lockstep
