// Sums over the ranks of one host, in place, in memory that all of them have mapped.
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

// A part of memory that came from ShmAllReduce::allocate: the same on every rank.
struct ShmRange {
  const SharedMemory* memory = nullptr;
  size_t offset = 0;  // bytes
  int64_t count = 0;  // elements
  DType type = DType::f32;
};

// Nothing is sent and nothing copied: each rank adds up its share of the elements, reading them from every rank's
// memory and writing the sums to every rank's. So all ranks get the same bits, added in the order of ranks whatever the
// timing; numbers of 16 bits are added in float32 and rounded once.
//
// Ranks make the same sums in the same order. Each tells the others by two counters of its own, and by ringing, that it
// has come to a sum and that it has added up its share; the sums before a rank's counter are then true of it. No step
// waits, so a dead rank holds nobody up but those that wait for its part.
//
// Owned by a communicator. allocate() and find() are for the thread that runs the step, begin() and advance() for the
// communication thread.
class ShmAllReduce {
 public:
  struct Result {
    std::unique_ptr<ShmAllReduce> sums;
    std::string reason;  // as SharedMemory's
  };
  // Collective over the group, whose ranks must all be on this host.
  static Result make(ProcessGroup& group);

  // This rank's memory of so many bytes; empty, with the reason, where it cannot be had. Lives as long as this
  // object. Collective.
  struct Allocation {
    std::span<std::byte> bytes;
    std::string reason;
  };
  Allocation allocate(ProcessGroup& group, size_t bytes);
  // Where these values lie, if there are any and they lie in one allocation.
  std::optional<ShmRange> find(std::span<const std::byte> values, DType type) const;

  // This rank's; others ring it when they get on.
  Doorbell bell() const { return bell_of(rank_); }

  // This rank has come to its next sum. Returns the sum's number.
  int64_t begin();
  // Lets sum `number` go on, those before it first. True when it is done on all ranks.
  bool advance(int64_t number, const ShmRange& part);

 private:
  struct Counters;
  ShmAllReduce(std::unique_ptr<SharedMemory> control, int rank) : control_(std::move(control)), rank_(rank) {}
  Counters& counters(int rank) const;
  Doorbell bell_of(int rank) const;
  bool all_at_least(int64_t Counters::*counter, int64_t number) const;
  void tell(int64_t Counters::*counter, int64_t number);

  std::unique_ptr<SharedMemory> control_;  // the counters
  const int rank_;
  int64_t begun_ = 0, added_ = 0;                     // of this rank; used by the communication thread
  std::deque<std::unique_ptr<SharedMemory>> memory_;  // used by the thread of the step
};

}  // namespace lockstep
