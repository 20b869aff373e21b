// The plans of convolutions on GPUs: timed by rank 0, the same on all ranks, kept beside the checkpoints.
#pragma once

#include <functional>
#include <string>

#include "lockstep/backend/plan_tuning.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/config/config.h"

namespace lockstep {

// The source of plans. Without either, every rank uses the library's first plans.
struct PlanSource {
  bool timed = false;
  std::string directory = {};       // of a run, whose kept plans come first; empty: none
  bool only_of_checkpoint = false;  // kept plans count only if there is a checkpoint, which was made with them
};

// For a new run without a directory, according to device.tune.
PlanSource new_plans(const Config& config);
// For a run that may resume.
PlanSource plans_of_run(const Config& config);
// For a command that uses a checkpoint and times nothing.
PlanSource plans_of_checkpoint(const Config& config, const std::string& checkpoint);

// Collective. Rank 0 calls `compile`, which compiles with the backend of `plans`, and the others use its choices,
// unless their device or library differs, which causes a warning. Returns what keep_plans() writes, or an empty text if
// there is nothing to choose. The ranks that have not compiled must do so afterwards. Throws AgreedError: checkpoint
// (5) if the kept plans cannot be used, and what `compile` throws.
std::string agree_on_plans(ProcessGroup& group, PlanTuning& plans, const PlanSource& source,
                           const std::function<void()>& compile);

// Collective. Rank 0 writes them to the directory of a run; with an empty text, it deletes those of a previous run.
void keep_plans(ProcessGroup& group, const std::string& directory, const std::string& text);

}  // namespace lockstep
