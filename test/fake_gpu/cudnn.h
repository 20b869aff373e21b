// The parts of the fake device's cuDNN.
#pragma once

#include <cudnn.h>

#include <cstdint>

#include "test/fake_gpu/work.h"

namespace lockstep::fake_gpu {

// What cuDNN itself says that the plan wants.
size_t workspace_bytes_of(cudnnBackendDescriptor_t plan);

// A number that is the same for plans with the same engine and knobs for the same tensors, in every process.
uint64_t number_of(cudnnBackendDescriptor_t plan);

// What executing a plan with a variant pack is, from the descriptors that both were made of. Throws Refused when the
// pack does not fit the plan: a tensor that is not there once, memory that is too small, not aligned or not the
// device's.
Operation execution_of(cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack);

}  // namespace lockstep::fake_gpu
