#include "lockstep/base/cpu_cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/control_groups.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/proc.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> parse_spaced_number(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n";
  const size_t first = std::min(text.find_first_not_of(kSpaces), text.size());
  return parse_number<int64_t>(text.substr(first, text.find_last_not_of(kSpaces) + 1 - first));
}

std::optional<double> quota_in(const fs::path& directory) {
  if (const auto cpu_max = read_system_file(directory / "cpu.max")) return parse_cpu_max(*cpu_max);
  const auto quota = read_system_file(directory / "cpu.cfs_quota_us");
  const auto period = read_system_file(directory / "cpu.cfs_period_us");
  if (quota && period) return parse_cfs_quota(*quota, *period);
  return std::nullopt;
}

std::optional<double> tighter(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

}  // namespace

CpuCores cpu_cores() {
  CpuCores cores;
  // The kernel returns EINVAL if the set is smaller than its own, whose size no header states.
  for (int capacity = 1024; capacity <= (1 << 20); capacity *= 2) {
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(capacity));
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    if (set == nullptr || sched_getaffinity(0, bytes, set.get()) != 0) continue;
    cores.cpus.clear();
    for (int cpu = 0; cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) cores.cpus.push_back(cpu);
    }
    break;
  }
  cores.quota = control_group_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  return cores;
}

int usable_cores(const CpuCores& cores, const CoreSharing& sharing) {
  int usable = static_cast<int>(cores.cpus.size()) / std::max(1, sharing.same_mask_ranks);
  if (cores.quota) {
    const int granted = static_cast<int>(std::ceil(std::min(*cores.quota, 1e6)));
    usable = std::min(usable, granted / std::max(1, sharing.local_ranks));
  }
  return std::max(1, usable);
}

ThreadBudget thread_budget(const ThreadRequest& request) {
  ThreadBudget budget;
  budget.compute = request.compute > 0           ? request.compute
                   : request.omp_num_threads > 0 ? request.omp_num_threads
                                                 : std::max(1, request.cores);
  budget.workers = request.workers > 0 ? request.workers : std::clamp((request.cores + 3) / 4, 1, 8);
  return budget;
}

std::optional<int> parse_omp_num_threads(std::string_view value) {
  std::optional<int> outermost;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t comma = std::min(value.find(',', begin), value.size());
    const std::optional<int64_t> threads = parse_spaced_number(value.substr(begin, comma - begin));
    if (!threads || *threads < 1 || *threads > kMostThreads) return std::nullopt;
    if (!outermost) outermost = static_cast<int>(*threads);
    begin = comma + 1;
  }
  return outermost;
}

std::optional<double> parse_cpu_max(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return parse_cfs_quota(text.substr(0, space), text.substr(space));
}

std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us) {
  const auto quota = parse_spaced_number(quota_us);  // "max" is no number, -1 is no quota
  const auto period = parse_spaced_number(period_us);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> control_group_quota(const fs::path& membership, const fs::path& root) {
  std::optional<double> quota;
  for (const fs::path& directory : control_group_directories(membership, root, "cpu")) {
    quota = tighter(quota, quota_in(directory));
  }
  return quota;
}

}  // namespace lockstep
