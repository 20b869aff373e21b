// The ranks of this job on this host, as /proc shows them: all that can be known of others before MPI has started.
#pragma once

#include <string>

#include "lockstep/comm/supervision/launcher.h"

namespace lockstep {

// "rank 1 of this host is suspended (process 4711)", or that all of them are alive. Ranks belong together that have the
// same PMIX_NAMESPACE, which Open MPI and Slurm set; without it, says that nothing can be known. `proc`: /proc.
std::string describe_local_ranks(const EnvironmentLookup& environment, const std::string& proc = "/proc");

}  // namespace lockstep
