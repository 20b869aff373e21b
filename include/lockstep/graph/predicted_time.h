// How long the nodes of a compiled graph take on a GPU, by a model in which nothing is measured.
#pragma once

#include <cstddef>

#include "lockstep/graph/executable.h"

namespace lockstep {

struct DeviceRates {
  double bytes_per_second = 0;       // of memory, that kernels reach
  double operations_per_second = 0;  // that convolutions and products reach
  double gap_seconds = 0;            // between two kernels of a captured step
};

// Returns the rates of an NVIDIA H100 whose memory copies `copied_bytes_per_second`.
DeviceRates assumed_rates(DType compute, bool tf32, double copied_bytes_per_second = 3.0e12);

// Returns the bytes that the kernels of the node at a schedule position read and write: those of its operands, as often
// as the kernels pass over them.
double node_bytes(const Executable& executable, const Backend& backend, size_t position);

// Returns the longer of the times of the node's bytes and of its operations, with channels padded to tiles.
double node_seconds(const Executable& executable, const Backend& backend, size_t position, const DeviceRates& rates);

}  // namespace lockstep
