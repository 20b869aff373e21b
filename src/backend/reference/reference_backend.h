// The reference backend: plain loops over plain tensors in float32 or float64, all sums in double. Every
// other backend is tested against it, and tests of exact arithmetic use it in float64.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options);

}  // namespace lockstep
