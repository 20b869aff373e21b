// Checks of the state over all ranks.
#pragma once

#include <string>

#include "lockstep/comm/group/process_group.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// Collective. Throws AgreedError(internal) naming the first parameter or statistic whose bits differ between ranks.
// All work on them must have been waited for.
void audit_parameters(ProcessGroup& group, const CompiledModel& model, double wait_seconds);

// The parameter whose gradient lies at this place of the gradient arena (StepOutcome::bad_gradient); "an unknown
// parameter" where there is none.
std::string parameter_at(const CompiledModel& model, double place);

}  // namespace lockstep
