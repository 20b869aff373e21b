// The common part of evaluate and predict: the model with the weights of a checkpoint, and labels that match it.
#pragma once

#include <memory>
#include <span>

#include "app/cli/command_line.h"
#include "app/job.h"
#include "lockstep/comm/transport/communicator.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/start_state.h"

namespace lockstep {

// Collective. Opens the data set to evaluate on. Throws AgreedError(config) if the configuration names none.
std::unique_ptr<DataSource> open_evaluation_data(const Config& config, ProcessGroup& group, Watchdog& watchdog);

// Members are destroyed before those that they use. Configuration and data must outlive it.
struct EvaluationSetup {
  ModelSetup setup;
  std::unique_ptr<Communicator> communicator;
  LoadedWeights loaded;
  std::unique_ptr<Evaluator> evaluator;
};

// Collective. Loads the checkpoint of the command with load_for_evaluation(). Throws the errors of that function, and
// AgreedError(config) if the command asks for averages that it does not have. If the data have only some of the
// checkpoint's classes, their labels become those of the checkpoint.
EvaluationSetup set_up_evaluation(const CommandLine& command, const Config& config, const ThreadBudget& threads,
                                  DataSource& data, ProcessGroup& group, Watchdog& watchdog);

// Returns the logits of sample `i` of a batch. Throws Error(numerics), which names the sample, if they are non-finite.
std::span<const float> logits_of(int64_t i, const Batch& batch, std::span<const float> logits, const DataSource& data);

}  // namespace lockstep
