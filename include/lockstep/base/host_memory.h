// How much memory the processes of this host may use.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep {

// In bytes; -1 if unknown. `total` counts swap, and stops at the limit of the control group: beyond it the
// kernel ends processes. `available`: what may be had without swapping.
struct HostMemory {
  int64_t total = -1;
  int64_t available = -1;
};

struct HostMemoryFiles {
  std::filesystem::path meminfo = "/proc/meminfo";
  std::filesystem::path membership = "/proc/self/cgroup";
  std::filesystem::path control_groups = "/sys/fs/cgroup";
};
HostMemory host_memory(const HostMemoryFiles& files = {});

}  // namespace lockstep
