// Examines the placement of the ranks of a host on its cores, and suggests the right command line.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/base/cpu_topology.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/group/rank_facts.h"

namespace lockstep {

// A rank of this host.
struct RankCores {
  std::vector<int> cpus;   // processors that it may use, sorted
  int threads = 1;         // number of threads with which it computes
  bool fills_host = true;  // it computes on the CPU, and no quota keeps it from using all cores
};

// Returns what is wrong with the placement of `ranks` on `host`, the processors that the job may use. `hosts` is the
// number of hosts of the job.
std::vector<Finding> judge_placement(std::span<const Processor> host, std::span<const RankCores> ranks, int hosts);

// Returns the options of mpirun and srun that start `ranks` on each of `hosts` hosts, each rank on cores of its own
// and, if they divide evenly, within a NUMA node.
std::string placement_options(std::span<const Processor> host, int ranks, int hosts);

// Collective. Does the same for every host of the job.
std::vector<Finding> placement_findings(ProcessGroup& group, const Timeout& wait, const RankCores& mine);

}  // namespace lockstep
