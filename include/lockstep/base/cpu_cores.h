// How many cores this process may use, and how they are divided between computing and loading.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

// The cores that the kernel lets this process use. mpirun binds a rank to one core, and containers and batch systems
// set quotas; the number of cores in the machine does not show either.
struct CpuCores {
  std::vector<int> cpus{0};     // in the affinity mask, sorted
  std::optional<double> quota;  // cores' worth of time the control group grants; none: unlimited
};

// Asks the kernel. Must be called before OpenMP starts, which may bind the calling thread (OMP_PROC_BIND).
CpuCores cpu_cores();

// How many ranks of this host draw on the same cores. Ranks bound to different cores share none of them, but still
// one control group.
struct CoreSharing {
  int local_ranks = 1;      // ranks on this host
  int same_mask_ranks = 1;  // those among them with this rank's affinity mask
};

// Cores for one rank, at least 1: the smaller of its share of the mask and its share of the quota (rounded up).
int usable_cores(const CpuCores& cores, const CoreSharing& sharing = {});

// In `compute` and `workers`, 0 means that nothing was requested.
struct ThreadRequest {
  int cores = 1;            // from usable_cores()
  int compute = 0;          // device.threads
  int workers = 0;          // data.workers
  int omp_num_threads = 0;  // OMP_NUM_THREADS of the environment, by parse_omp_num_threads(); 0: none
};
struct ThreadBudget {
  int compute = 1;  // threads of the compute backend
  int workers = 1;  // threads of the data loader
};

// Requests are granted even if they exceed the cores; OMP_NUM_THREADS requests compute threads. By default all cores
// compute, and one loader thread per four cores (1 to 8) shares them, because decoding is bursty and mostly waits.
ThreadBudget thread_budget(const ThreadRequest& request);

// The most threads that a process may be asked to compute with.
inline constexpr int kMostThreads = 1024;

// The outermost level of an OMP_NUM_THREADS value: a number from 1 to kMostThreads, or several with commas, one per
// level of nested parallel regions; spaces are allowed around each. Nothing when the text is anything else.
std::optional<int> parse_omp_num_threads(std::string_view value);

// Control group version 2, `cpu.max`: "200000 100000" is 2 cores, "max 100000" is unlimited.
std::optional<double> parse_cpu_max(std::string_view text);

// Version 1, `cpu.cfs_quota_us` (-1: unlimited) and `cpu.cfs_period_us`.
std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us);

// The tightest quota of the process's group and the groups around it. `membership` is /proc/self/cgroup, `root` where
// the control groups are mounted; missing or unreadable files impose no limit.
std::optional<double> control_group_quota(const std::filesystem::path& membership, const std::filesystem::path& root);

}  // namespace lockstep
