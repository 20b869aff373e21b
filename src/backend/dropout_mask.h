// The mask of dropout, the same on host and device.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/base/random.h"
#include "lockstep/ops/ops.h"

namespace lockstep {

// Which elements one execution of Dropout keeps (ops.h): a pure function of the step and the element's index, so that
// forward and backward agree, as do all backends and any number of ranks.
class DropoutMask {
 public:
  // `step` is the operation's i32[4] input: the step key, then the global index of the first sample, low words first.
  constexpr DropoutMask(const Dropout& op, std::span<const int32_t, 4> step)
      : key_(random_key(word(step[0], step[1]), op.node_key)),
        first_(word(step[2], step[3])),
        rate_(static_cast<float>(op.rate)) {}

  // Counter of the first element of this rank's sample n, for samples of `elements` elements.
  constexpr uint64_t counter(int64_t n, int64_t elements) const {
    return (first_ + static_cast<uint64_t>(n)) * static_cast<uint64_t>(elements);
  }
  constexpr bool keeps(uint64_t counter) const { return random_unit_float(key_, counter) >= rate_; }

 private:
  static constexpr uint64_t word(int32_t low, int32_t high) {
    return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
  }
  uint64_t key_;
  uint64_t first_;
  float rate_;
};

}  // namespace lockstep
