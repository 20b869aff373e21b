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
#include "comm/transport/host_layout.h"
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

// Nothing is sent or copied: each rank adds up its share of the elements (its lanes), reading the terms from every
// rank's memory and writing the sums to every rank's memory. All ranks get the same bits, because the terms are added
// in rank order, independently of timing. 16-bit floats are added in float32 and rounded once.
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
  // Collective over the group. The sums are over the ranks of this rank's host.
  static Result make(ProcessGroup& group, const HostLayout& hosts);

  // Collective. Returns `bytes` of this rank's memory, or an empty span with the reason. The memory lives as long as
  // this object.
  struct Allocation {
    std::span<std::byte> bytes;
    std::string reason;
  };
  Allocation allocate(ProcessGroup& group, size_t bytes);
  // Returns the range of these values if they are not empty and in one allocation.
  std::optional<ShmRange> find(std::span<const std::byte> values, DType type) const;

  // This rank's doorbell. Other ranks ring it when they have made progress.
  Doorbell bell() const { return bell_of(hosts_.local_index()); }

  // Starts this rank's next operation and returns its number, counted from 1.
  int64_t start();
  // Advances operation `number` without blocking; earlier operations must be advanced first. Returns whether it is done
  // on all ranks.
  bool advance(int64_t number, const ShmRange& range);

  // The same in steps, for sums that continue between hosts. Operations must be added up, and distributed, in order.
  // Adds up the rank's share into its own memory, if that has not been done and all ranks of the host have started.
  // Returns whether it is there.
  bool add_up(int64_t number, const ShmRange& range);
  // The values of lane `lane` in this rank's memory.
  std::span<std::byte> lane(const ShmRange& range, int lane) const;
  // Copies the rank's share to the other ranks if the shares of earlier operations have been. Returns whether it has
  // been copied.
  bool distribute(int64_t number, const ShmRange& range);
  // Returns whether all ranks of the host have distributed their shares.
  bool done(int64_t number) const;
  // Returns the only rank for which the others on this host wait, or -1 if it is none or several.
  int straggler(int64_t number) const;

 private:
  struct Counters;
  ShmAllReduce(std::unique_ptr<SharedMemory> control, HostLayout hosts)
      : control_(std::move(control)), hosts_(std::move(hosts)) {}
  Counters& counters(int local) const;  // of the rank with this index among the host's ranks
  Doorbell bell_of(int local) const;
  bool may_add_up(int64_t number) const;
  bool all_at_least(int64_t Counters::*counter, int64_t number) const;
  void publish(int64_t Counters::*counter, int64_t number);

  std::unique_ptr<SharedMemory> control_;  // holds the counters
  const HostLayout hosts_;
  // This rank's counters, and the number of sums that it has added up. Only the communication thread uses them.
  int64_t started_ = 0, reduced_ = 0, added_up_ = 0;
  std::deque<std::unique_ptr<SharedMemory>> memory_;  // the allocations; only the thread of the step uses them
};

}  // namespace lockstep
