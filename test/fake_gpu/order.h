// The order of the fake device's work for one scope of a test; the device has forgotten its faults at the end.
#pragma once

#include <string>

#include "test/fake_gpu/work.h"

namespace lockstep::fake_gpu {

class InOrder {
 public:
  explicit InOrder(const std::string& order) { Device::get().set_order(order); }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;
  ~InOrder() {
    Device::get().forget_fault();
    (void)cudaGetLastError();
    Device::get().set_order("eager");
  }
};

}  // namespace lockstep::fake_gpu
