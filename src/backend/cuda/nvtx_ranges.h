// The program's spans as NVTX ranges: a profiler shows them in the time of its own records, beside the device's work.
#pragma once

#include "lockstep/base/trace.h"

namespace lockstep::cuda {

// Of this process, to the end of it; null when no tool takes ranges. NVTX looks for one once, at its first call: in the
// library that NVTX_INJECTION64_PATH names, which profilers set for what they start.
SpanObserver* nvtx_ranges();

}  // namespace lockstep::cuda
