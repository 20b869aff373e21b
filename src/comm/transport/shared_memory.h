// Memory of the ranks of one host that all of them read and write.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class ProcessGroup;

// A block of every rank, of one size, mapped by all. It is made of memfds: they have no names that could be left behind
// when ranks are killed, and no limit from a small /dev/shm. All pages exist from the start, and no process can take
// them away, so using the memory never fails; what dead ranks have written stays.
//
// Owned by a communicator. The blocks belong to the job alone; any thread may use them as the ranks agree.
class SharedMemory {
 public:
  struct Result {
    std::unique_ptr<SharedMemory> memory;
    std::string reason;  // where there is none: which rank could not, and why; the same on every rank
  };
  // Collective over the group, whose ranks must all be on this host. Zeroed. Throws what the group's exchanges throw.
  static Result make(ProcessGroup& group, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  size_t bytes() const { return bytes_; }
  int ranks() const { return static_cast<int>(blocks_.size()); }
  std::byte* of(int rank) const { return blocks_[static_cast<size_t>(rank)]; }

 private:
  explicit SharedMemory(size_t bytes) : bytes_(bytes) {}

  size_t bytes_;
  std::vector<std::byte*> blocks_;  // by rank; as far as they are mapped
};

}  // namespace lockstep
