// The processors of this host: which of them are threads of one core, and to which NUMA node each belongs.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

struct Processor {
  int number = 0;  // as in affinity masks
  int core = 0;    // the lowest processor of its core
  int node = 0;    // the NUMA node whose memory is near; 0 if the system has none
};

// Returns the processors that are online, by number; none if the system does not say. `system`: /sys/devices/system.
std::vector<Processor> processors_of(const std::filesystem::path& system);

// Parses the format of number_ranges(), which /sys and taskset use. Returns nothing for any other text.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

// Returns the processors that the process's control group may use; nothing if it does not say. Files as for
// control_group_quota().
std::optional<std::vector<int>> control_group_cpus(const std::filesystem::path& membership,
                                                   const std::filesystem::path& root);

}  // namespace lockstep
