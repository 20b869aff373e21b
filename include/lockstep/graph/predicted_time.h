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

// Bytes a second that a copy within the memory of an NVIDIA H100 or H200 is assumed to reach.
inline constexpr double kH100CopyRate = 3.0e12, kH200CopyRate = 4.3e12;

// Returns the operations a second that products are assumed to reach at most on an H100 or H200.
double assumed_peak(DType compute, bool tf32);

// Returns the rates of an H100 or H200 whose memory copies `copied_bytes_per_second`.
DeviceRates assumed_rates(DType compute, bool tf32, double copied_bytes_per_second = kH100CopyRate);

// Returns the bytes that the kernels of the node at a schedule position read and write: those of its operands, as often
// as the kernels pass over them.
double node_bytes(const Executable& executable, const Backend& backend, size_t position);

// Returns the longer of the times of the node's bytes and of its operations, with channels padded to tiles.
double node_seconds(const Executable& executable, const Backend& backend, size_t position, const DeviceRates& rates);

}  // namespace lockstep
