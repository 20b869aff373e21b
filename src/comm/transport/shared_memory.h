// Memory that all ranks of one host read and write.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

class ProcessGroup;

// One block per rank of this host, all of the same size and mapped by all of these ranks. The blocks are memfds: they
// leave no names behind when ranks are killed, and a small /dev/shm does not limit them. All pages are allocated at
// creation and the files are sealed against shrinking, so an access never fails; the data of a dead rank remain.
//
// Owned by a communicator. Only the job can access the blocks. Any thread may use them; the ranks must synchronize
// their accesses.
class SharedMemory {
 public:
  struct Result {
    std::unique_ptr<SharedMemory> memory;
    std::string reason;  // if `memory` is null: which rank failed and why; the same on every rank
  };
  // Collective over the group. `local` are the ranks of this host, in ascending order. Allocates zeroed blocks of
  // `bytes`, on all hosts or on none. Throws what the group's collectives throw.
  static Result make(ProcessGroup& group, std::span<const int> local, size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  size_t bytes() const { return bytes_; }
  int ranks() const { return static_cast<int>(blocks_.size()); }
  std::byte* block(int local) const { return blocks_[local]; }  // of the rank with this index among the host's ranks

 private:
  explicit SharedMemory(size_t bytes) : bytes_(bytes) {}

  size_t bytes_;
  std::vector<std::byte*> blocks_;  // by index among the host's ranks; fewer if mapping failed
};

}  // namespace lockstep
