// The program's spans as NVTX ranges, which a profiler shows on its own time axis beside the device's work.
#pragma once

#include "lockstep/base/trace.h"

namespace lockstep::cuda {

// The observer of this process, which lives to its end; null when no tool is attached. NVTX looks for a tool once, at
// its first call, in the library that NVTX_INJECTION64_PATH names; profilers set this variable for the programs they
// start.
SpanObserver* nvtx_ranges();

}  // namespace lockstep::cuda
