// A CPU that behaves like a device, for finding faults of order: what is enqueued runs late, and every access to memory
// is checked against what was ordered before it.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep {

// Computes with `inner`, a backend of host memory. As on a device, kernels and copies run only when something waits for
// them, each stream in order and no further than needed; the host may not touch what allocate() gives; copies to and
// from memory that is not pinned behave as CUDA's do.
//
// A kernel or copy throws Error(internal), when it is enqueued, if it reads or writes memory that another stream used
// before it and no event or host wait stands between the two: on a device it might run first. The message names both.
// What communicators do to memory by themselves, outside the streams, is not seen.
//
// Slow, and it keeps all memory until it is destroyed. One thread.
std::unique_ptr<Backend> make_deferred_backend(std::unique_ptr<Backend> inner);

}  // namespace lockstep
