// Kernels that a test launches wrongly (planted_faults.cu).
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::test {

constexpr unsigned kBound = 64;  // threads that a block may have

// Each counts the threads that run; the second has twice the bound, by its template argument.
void launch_bounded(unsigned block, unsigned* threads);
void launch_template_bounded(unsigned block, unsigned* threads);

// With 40 KiB of shared memory of its own, and at least a float of the launch's.
void launch_sharing(size_t dynamic_bytes, float* result);

}  // namespace lockstep::test
