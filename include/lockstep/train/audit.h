// Checks of the state over all ranks.
#pragma once

#include <string>

#include "lockstep/dist/process_group.h"
#include "lockstep/train/program.h"

namespace lockstep {

// Collective. Throws AgreedError(internal) naming the first parameter or statistic whose bits differ between ranks.
// All work on them must have been waited for.
void audit_parameters(ProcessGroup& group, const Program& program, double wait_seconds);

// The first parameter, in the order in which gradients finish, whose gradient holds a value that is not finite;
// "an unknown parameter" when there is none, or when the host cannot read the gradients.
std::string first_bad_gradient(const Program& program);

}  // namespace lockstep
