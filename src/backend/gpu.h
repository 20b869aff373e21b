// The CUDA backend as the program sees it: a plugin that is opened at first use.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep {

// Throws Error(config) where there is no usable GPU (gpu_unavailable_reason) or the plugin's libraries are missing.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

}  // namespace lockstep
