// Makes the CUDA backend on one GPU: cuDNN for convolutions, cuBLAS for linear layers, our own kernels for the rest.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep::cuda {

// Uses options.device for this thread from now on: kernels are compiled and run by the thread that made the backend.
// Throws Error(config) when the runtime cannot use the device.
std::unique_ptr<Backend> make_backend_on_device(const BackendOptions& options);

}  // namespace lockstep::cuda
