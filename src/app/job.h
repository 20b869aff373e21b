// The common parts of train and evaluate: configuration for all ranks, threads, backend, data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/fatal.h"
#include "app/tuned_plans.h"
#include "lockstep/backend/backend.h"
#include "lockstep/base/cpu_cores.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/supervision/watchdog.h"
#include "lockstep/config/config.h"
#include "lockstep/config/load.h"
#include "lockstep/data/source/data_source.h"
#include "lockstep/exchange/onnx_import.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

struct Configured {
  Config config;
  bool new_directory = false;            // rank 0: every start of this command has another checkpoint.directory
  std::unique_ptr<OnnxModel> onnx = {};  // rank 0: model.file of a training, with its weights; null: none
};

// Collective. Rank 0 reads file, environment and command line, and every rank gets the result. From then on its limits
// apply, and reports go to its directory. Throws AgreedError.
Configured configure(const CommandLine& command, ProcessGroup& group, Watchdog& watchdog, FatalReport& fatal_report);

// The threads of this rank, from its cores and those that other ranks of the host use.
struct RankThreads {
  std::vector<int> cpus;  // processors in its affinity mask
  int usable_cores = 1;
  ThreadBudget budget;
};
// Collective.
RankThreads count_threads(const Config& config, ProcessGroup& group);

// Collective. Rank 0 prints cores and threads of every rank: a line for each, with its pid, or for ranks that are
// alike.
void announce_threads(const RankThreads& threads, ProcessGroup& group);

// Collective. Plans the threads and announces them.
ThreadBudget plan_threads(const Config& config, ProcessGroup& group);

// Returns callbacks that warn, and end the job with exit code 6, if this rank makes no progress.
WatchdogOptions watchdog_options(const WatchdogLimits& limits);

// The model of a rank and what it runs on. Members are destroyed before those on which they depend.
struct ModelSetup {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<CompiledModel> model;
  BatchSizes batches;
  bool shared_devices = false;  // some ranks compute on one GPU
  std::string plans = {};       // of convolutions, for keep_plans(); empty: none were chosen
};
// Collective; throws AgreedError.
struct ModelUse {
  Purpose purpose = Purpose::train;
  PlanSource plans = {};
};
ModelSetup set_up_model(const Config& config, const ModelUse& use, const ThreadBudget& threads, ProcessGroup& group);

// Collective. Opens the data set: rank 0 lists the files, every rank opens them. Throws AgreedError.
enum class Split : uint8_t { training, validation };
std::unique_ptr<DataSource> open_data(const Config& config, Split split, ProcessGroup& group);

// Collective. Opens image files, and those below directories, in this order; rank 0 lists them. Throws AgreedError.
std::unique_ptr<DataSource> open_given_images(const std::vector<std::string>& paths, ProcessGroup& group);

}  // namespace lockstep
