// Races in kernels, as far as a host can show them: whatever order a block's threads run in between barriers, and a
// grid's blocks, the results must have the same bits.
#pragma once

#include <functional>
#include <vector>

#include "test/backend/cuda_on_host/emulate.h"
#include "test/backend/op_runner.h"

namespace lockstep::test {

// Launches run in this order while it lives, and in ascending order afterwards.
class InThreadOrder {
 public:
  explicit InThreadOrder(ThreadOrder order) { set_thread_order(order); }
  InThreadOrder(const InThreadOrder&) = delete;
  InThreadOrder& operator=(const InThreadOrder&) = delete;
  ~InThreadOrder() { set_thread_order(ThreadOrder::ascending); }
};

// What compute() returns. It is called once in each order; throws std::logic_error, which names the order and the first
// tensor, when a tensor's bits are not those of the ascending order.
std::vector<HostTensor> computed_in_every_order(const std::function<std::vector<HostTensor>()>& compute);

}  // namespace lockstep::test
