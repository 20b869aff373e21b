// Which cores of a host the ranks of a job get.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/base/cpu_topology.h"

namespace lockstep {

struct RankMapping {
  std::string map;  // for mpirun's --map-by, without the cores: "ppr:2:numa"
  int cores = 1;    // of a rank
};

// Maps `ranks` ranks to each host like this one: each rank on cores of its own and, if they divide evenly, within a
// NUMA node. `host` has at least one processor.
RankMapping map_ranks(std::span<const Processor> host, int ranks);

// Return the number of cores and of NUMA nodes of these processors.
int count_cores(std::span<const Processor> host);
int count_nodes(std::span<const Processor> host);

// Returns the processors of this host that the job may use; none if the system does not say.
std::vector<Processor> processors_of_job();

}  // namespace lockstep
