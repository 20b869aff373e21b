#include "test/backend/cuda_on_host/every_order.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace lockstep::test {
namespace {

// Equal bits, also those of values that are NaN.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

}  // namespace

std::vector<HostTensor> computed_in_every_order(const std::function<std::vector<HostTensor>()>& compute) {
  const auto in_order = [&](ThreadOrder order) {
    const InThreadOrder in(order);
    return compute();
  };
  const std::vector<HostTensor> expected = in_order(ThreadOrder::ascending);
  for (const auto& [order, name] :
       {std::pair(ThreadOrder::descending, "descending"), std::pair(ThreadOrder::shuffled, "shuffled")}) {
    const std::vector<HostTensor> result = in_order(order);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (same_bits(result.at(i).values, expected[i].values)) continue;
      throw std::logic_error("tensor " + std::to_string(i) + " has other bits when threads run in " + name + " order");
    }
  }
  return expected;
}

}  // namespace lockstep::test
