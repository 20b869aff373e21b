// CUDA graphs behind the backend's interface.
#pragma once

#include <functional>
#include <memory>

#include "backend/cuda/stream.h"

namespace lockstep::cuda {

// See Backend::capture.
std::unique_ptr<CapturedWork> capture(CudaStream& stream, const std::function<void()>& enqueue);

}  // namespace lockstep::cuda
