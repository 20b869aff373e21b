// Finds the ranks of this job on this host in /proc, which is the only source of information about other ranks before
// MPI has started.
#pragma once

#include <string>

#include "lockstep/comm/supervision/launcher.h"

namespace lockstep {

// Returns a text for messages: "rank 1 is suspended (process 4711)", or that all local ranks are alive. Ranks of one
// job have the same PMIX_NAMESPACE, which Open MPI and Slurm set; without it, the text says that nothing can be known.
// `proc` is the directory that is read; tests pass their own.
std::string describe_local_ranks(const EnvironmentLookup& environment, const std::string& proc = "/proc");

// Returns whether this rank is the lowest of its job on this host that is neither suspended nor dead. True if that
// cannot be known.
bool is_lowest_local_rank(const EnvironmentLookup& environment, const std::string& proc = "/proc");

}  // namespace lockstep
