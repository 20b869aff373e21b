// The CPU backend: oneDNN's primitives for convolutions, linear layers and max pooling, our own loops for the rest;
// float32.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);

}  // namespace lockstep
