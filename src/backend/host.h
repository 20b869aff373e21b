// What the backends that compute on the CPU share: memory, copies, the stream, and the choice dropout makes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/backend/backend.h"
#include "lockstep/base/random.h"

namespace lockstep {

// Kernels of a CPU have finished when run() returns, so there is nothing to wait for.
class HostStream final : public Stream {
 public:
  void wait() override {}
};

// The part of a backend that deals with memory, for backends whose kernels read and write host memory. Any thread may
// call it.
class HostBackend : public Backend {
 public:
  // Whole pages from the kernel: zeroed when first touched, so a large arena costs only what is used of it.
  // Throws Error(internal) when there is no memory. No bytes give an empty buffer.
  Buffer allocate(size_t bytes) const final;
  void copy(Stream& stream, void* to, const void* from, size_t bytes) const final;
  std::unique_ptr<Stream> make_stream() const final;
};

// Which elements one execution of Dropout keeps (ops.h): a pure function of the step and the element's place, so that
// forward and backward agree, as do all backends and any number of ranks.
class DropoutMask {
 public:
  // `step` is the operation's i32[4] input: the step key, then the global index of the first sample, low words first.
  DropoutMask(const Dropout& op, std::span<const int32_t, 4> step)
      : key_(random_key(word(step[0], step[1]), op.node_key)),
        first_(word(step[2], step[3])),
        rate_(static_cast<float>(op.rate)) {}

  // Counter of the first element of this rank's sample n, for samples of `elements` elements.
  uint64_t counter(int64_t n, int64_t elements) const {
    return (first_ + static_cast<uint64_t>(n)) * static_cast<uint64_t>(elements);
  }
  bool keeps(uint64_t counter) const { return random_unit_float(key_, counter) >= rate_; }

 private:
  static uint64_t word(int32_t low, int32_t high) {
    return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
  }
  uint64_t key_;
  uint64_t first_;
  float rate_;
};

}  // namespace lockstep
