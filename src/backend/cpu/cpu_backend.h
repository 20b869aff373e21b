// The CPU backend: oneDNN's primitives for convolutions, linear layers and max pooling, our own loops for the rest;
// in float32, and in bfloat16 on processors that have instructions for it.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);

}  // namespace lockstep
