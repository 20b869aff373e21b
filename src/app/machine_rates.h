// How fast a backend computes and moves data at best.
#pragma once

#include "lockstep/backend/backend.h"
#include "lockstep/observe/step_table.h"

namespace lockstep {

// Times a large product of `compute` elements and a large sum of float32 on the stream: the best of a few runs. Takes
// some 100 ms and 400 MB of the backend's memory.
MachineRates measure_machine_rates(const Backend& backend, Stream& stream, DType compute);

}  // namespace lockstep
