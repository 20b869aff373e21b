// How much memory the processes of this host may use.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

// In bytes; -1 if unknown. `total` is memory and swap, within the limits of the control groups, beyond which the kernel
// ends processes, and within the limit of overcommit mode 2, beyond which allocations fail. `available` is what can be
// allocated without swapping.
struct HostMemory {
  int64_t total = -1;
  int64_t available = -1;
};

struct HostMemoryFiles {
  std::filesystem::path meminfo = "/proc/meminfo";
  std::filesystem::path overcommit = "/proc/sys/vm/overcommit_memory";
  std::filesystem::path membership = "/proc/self/cgroup";
  std::filesystem::path control_groups = "/sys/fs/cgroup";
};
HostMemory host_memory(const HostMemoryFiles& files = {});

}  // namespace lockstep
