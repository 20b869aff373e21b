// For tests that run under mpirun: every rank runs the same cases in the same order.
#pragma once

#include "lockstep/comm/group/process_group.h"

namespace lockstep::testing {

// All ranks of the run; calls wait for 30 s at most, so that a case that fails on one rank ends on the others.
ProcessGroup& world();
// The life of MPI, for what needs one.
const MpiSession& session();

}  // namespace lockstep::testing
