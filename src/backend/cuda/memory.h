// Plain allocations of device and pinned host memory, made once at start.
#pragma once

#include "lockstep/backend/backend.h"

namespace lockstep::cuda {

// Zeroed, on the current device. Throws Error(internal) when there is not enough.
Buffer allocate_device(size_t bytes);
Buffer allocate_pinned_host(size_t bytes);

}  // namespace lockstep::cuda
