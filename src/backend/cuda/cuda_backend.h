// Makes the CUDA backend on one GPU: cuDNN for convolutions, cuBLAS for linear layers, our own kernels for the rest.
#pragma once

#include <memory>
#include <string_view>

#include "lockstep/backend/backend.h"

namespace lockstep::cuda {

// Uses options.device for this thread from now on: kernels are compiled and run by the thread that made the backend.
// Throws Error(config) when the runtime cannot use the device.
std::unique_ptr<Backend> make_backend_on_device(const BackendOptions& options);

// A backend for a GPU that is only described, as cuDNN serializes device properties: it compiles graphs, with all plans
// and sizes, and cannot run them.
std::unique_ptr<Backend> make_backend_for_described_device(std::string_view device_as_json,
                                                           const BackendOptions& options);

}  // namespace lockstep::cuda
