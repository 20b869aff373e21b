// Device memory of floats, for tests of the fake libraries.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "test/catch.h"

namespace lockstep::fake_gpu {

// Multiples of `step`: 0, step, 2 step, ...
struct DeviceFloats {
  float* data = nullptr;
  explicit DeviceFloats(size_t count, float step = 0) {
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float)) == cudaSuccess);
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = step * static_cast<float>(i);
    REQUIRE(cudaMemcpy(data, values.data(), count * sizeof(float), cudaMemcpyDefault) == cudaSuccess);
  }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  ~DeviceFloats() { (void)cudaFree(data); }

  std::vector<float> values(size_t count) const {
    std::vector<float> result(count);
    REQUIRE(cudaMemcpy(result.data(), data, count * sizeof(float), cudaMemcpyDefault) == cudaSuccess);
    return result;
  }
};

}  // namespace lockstep::fake_gpu
