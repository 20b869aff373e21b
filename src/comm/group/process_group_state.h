// The MPI objects of a ProcessGroup. Only sources of this layer include it, so that <mpi.h> stays out of public
// headers.
#pragma once

#include <string>
#include <vector>

#include "comm/group/mpi_support.h"
#include "lockstep/comm/group/process_group.h"

namespace lockstep {

struct ProcessGroupState {
  CommHandle comm;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::vector<int64_t> first_on_host{0};  // by rank
  WaitLimits limits{};                    // in seconds, by RunPhase
  bool broken = false;
  ProgressBoard* board = nullptr;
  std::vector<std::string> hosts;  // by rank; empty until they have been gathered
};

}  // namespace lockstep
