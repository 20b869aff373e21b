// A GPU that computes nothing and counts what it is given: the parts of the runtime, cuDNN and cuBLAS that the CUDA
// backend calls for its step, in the place of the libraries' own (counting_device.cc). Plans are still cuDNN's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace lockstep::test {

struct DeviceWork {
  std::map<std::string, int64_t> kernels;  // our own launches, by the kernel's name without its template arguments
  int64_t convolutions = 0, products = 0, copies = 0;

  int64_t launches() const {
    int64_t all = convolutions + products + copies;
    for (const auto& [name, count] : kernels) all += count;
    return all;
  }
};

// Since the last call. Throws std::runtime_error when a launch was beyond what a GPU takes.
DeviceWork take_device_work();

// The capability of the device that is planned for: cuDNN's frontend asks the runtime for it.
void set_device_capability(int major);

// An address that nothing may read or write.
void* device_address(size_t bytes);

}  // namespace lockstep::test
