// The C functions that the plugin exports and the program finds by name.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/nvtx_ranges.h"

extern "C" __attribute__((visibility("default"))) lockstep::Backend* lockstep_make_cuda_backend(
    const lockstep::BackendOptions* options) {
  return lockstep::cuda::make_backend_on_device(*options).release();
}

extern "C" __attribute__((visibility("default"))) lockstep::SpanObserver* lockstep_nvtx_ranges() {
  return lockstep::cuda::nvtx_ranges();
}
