// The functions that make the backends (backend_table.cc has the table).
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep {

// Plain loops over plain tensors in float32 or float64, all sums in double. Every other backend is tested against it,
// and tests of exact arithmetic use it in float64.
std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options);

// oneDNN's primitives for convolutions, linear layers and max pooling, our own loops for the rest; in float32, and in
// bfloat16 on processors that have instructions for it.
std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);

// A plugin that is opened at first use. Throws Error(config) if there is no usable GPU (gpu_unavailable_reason) or the
// libraries of the plugin are missing.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

}  // namespace lockstep
