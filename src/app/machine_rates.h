// Measures how fast a backend computes and moves data at best.
#pragma once

#include "lockstep/backend/backend.h"
#include "lockstep/observe/step_table.h"

namespace lockstep {

// Times products of matrices of `compute` elements and sums of float32 on the stream, of growing size, up to 64 M
// elements an operand, until they take 10 ms: the best of a few runs. Takes some 100 ms and up to 800 MB of the
// backend's memory.
MachineRates measure_machine_rates(const Backend& backend, Stream& stream, DType compute);

}  // namespace lockstep
