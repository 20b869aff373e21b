// A shared-memory all-reduce (sum) over the ranks of one host, in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/transport/doorbell.h"
#include "comm/transport/shared_memory.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A range of memory from ShmAllReduce::allocate(). Its offset and length are the same on every rank.
struct ShmRange {
  const SharedMemory* memory = nullptr;
  size_t offset = 0;  // bytes
  int64_t count = 0;  // elements
  DType type = DType::f32;
};

// Nothing is sent or copied: each rank adds up its share of the elements, reading the terms from every rank's memory
// and writing the sums to every rank's memory. All ranks get the same bits, because the terms are added in rank order
// whatever the timing. 16-bit floats are added in float32 and rounded once.
//
// All ranks perform the same operations in the same order. Each rank has two counters in shared memory: the number of
// operations that it has started, and the number whose share it has added up. It rings the other ranks' doorbells when
// a counter changes. No call blocks, so a dead rank delays only operations that need its share.
//
// Owned by a communicator. The thread that runs the step calls allocate() and find(); the communication thread calls
// start() and advance().
class ShmAllReduce {
 public:
  struct Result {
    std::unique_ptr<ShmAllReduce> all_reduce;
    std::string reason;  // if `all_reduce` is null: which rank failed and why
  };
  // Collective over the group, whose ranks must all be on this host.
  static Result make(ProcessGroup& group);

  // Collective. Returns `bytes` of this rank's memory, or an empty span with the reason. The memory lives as long as
  // this object.
  struct Allocation {
    std::span<std::byte> bytes;
    std::string reason;
  };
  Allocation allocate(ProcessGroup& group, size_t bytes);
  // Returns the range of these values if they are not empty and lie in one allocation.
  std::optional<ShmRange> find(std::span<const std::byte> values, DType type) const;

  // This rank's doorbell. Other ranks ring it when they have made progress.
  Doorbell bell() const { return bell_of(rank_); }

  // Starts this rank's next operation and returns its number, counted from 1.
  int64_t start();
  // Advances operation `number` without blocking; earlier operations must be advanced first. Returns whether it is done
  // on all ranks.
  bool advance(int64_t number, const ShmRange& range);

 private:
  struct Counters;
  ShmAllReduce(std::unique_ptr<SharedMemory> control, int rank) : control_(std::move(control)), rank_(rank) {}
  Counters& counters(int rank) const;
  Doorbell bell_of(int rank) const;
  bool all_at_least(int64_t Counters::*counter, int64_t number) const;
  void publish(int64_t Counters::*counter, int64_t number);

  std::unique_ptr<SharedMemory> control_;  // holds the counters
  const int rank_;
  int64_t started_ = 0, reduced_ = 0;                 // this rank's counters; only the communication thread uses them
  std::deque<std::unique_ptr<SharedMemory>> memory_;  // the allocations; only the thread of the step uses them
};

}  // namespace lockstep
