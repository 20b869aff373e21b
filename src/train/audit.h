// Compares the state of all ranks.
#pragma once

#include <string>

#include "lockstep/comm/group/process_group.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// Collective. Throws AgreedError(internal), which names the first parameter or statistic whose bits differ between
// ranks. All work on them must have finished.
void audit_parameters(ProcessGroup& group, const CompiledModel& model);

// Returns the name of the parameter whose gradient is at this index of the gradient arena (StepOutcome::bad_gradient),
// or "an unknown parameter" if there is none.
std::string parameter_at(const CompiledModel& model, double place);

}  // namespace lockstep
