// A CPU that behaves like a device, to find missing synchronization: enqueued work runs late, and the backend checks
// that every access to memory is ordered after the accesses on which it depends.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep {

// Computes with `inner`, a backend of host memory. As on a device, kernels and copies run only when something waits for
// them, each stream in order and no further than needed; the host may not touch memory from allocate(); copies to and
// from memory that is not pinned behave as in CUDA.
//
// A kernel or copy throws Error(internal), when it is enqueued, if it reads or writes memory that another stream used
// before, and no event or host wait orders the two: on a device it might run first. The message names both. Accesses of
// communicators outside the streams are not checked.
//
// It is slow and keeps all memory until it is destroyed. Used by one thread.
std::unique_ptr<Backend> make_deferred_backend(std::unique_ptr<Backend> inner);

}  // namespace lockstep
