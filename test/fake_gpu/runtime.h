// What the parts of the fake runtime share: how a call of the library becomes a status code.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <string>

#include "test/fake_gpu/streams.h"

namespace lockstep::fake_gpu {

// Remembers what cudaGetErrorString and cudaGetLastError say next on this thread; gives the status back.
cudaError_t remember(cudaError_t status, const std::string& why);

// Throws Refused on a thread that has chosen no device while another one has: CUDA would make it work on device 0,
// which may be another rank's.
void expect_device();

// The body of a call: body(lock), which throws what it is refused with. After a fault of the device every call fails.
template <class Body>
cudaError_t call(const Body& body) {
  Device& device = Device::get();
  Lock lock = device.lock();
  try {
    device.expect_well();
    expect_device();
    body(lock);
    device.expect_well();
    return cudaSuccess;
  } catch (const Refused& refused) {
    return remember(refused.status, refused.what());
  } catch (const std::exception& error) {
    device.fail(error.what());
    return remember(cudaErrorLaunchFailure, error.what());
  }
}

}  // namespace lockstep::fake_gpu
