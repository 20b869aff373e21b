#include "lockstep/base/cpu_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/control_groups.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/proc.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCpus = 1 << 20;

std::optional<std::vector<int>> read_cpu_list(const fs::path& path) {
  const auto text = read_system_file(path);
  return text ? parse_cpu_list(*text) : std::nullopt;
}

std::map<int, int> nodes_by_cpu(const fs::path& system) {
  std::map<int, int> nodes;
  for (const int node : read_cpu_list(system / "node/online").value_or(std::vector<int>{})) {
    const auto cpus = read_cpu_list(system / fmt::format("node/node{}/cpulist", node));
    for (const int cpu : cpus.value_or(std::vector<int>{})) nodes[cpu] = node;
  }
  return nodes;
}

}  // namespace

std::vector<Processor> processors_of(const fs::path& system) {
  const std::map<int, int> nodes = nodes_by_cpu(system);
  std::vector<Processor> found;
  for (const int cpu : read_cpu_list(system / "cpu/online").value_or(std::vector<int>{})) {
    const auto siblings = read_cpu_list(system / fmt::format("cpu/cpu{}/topology/thread_siblings_list", cpu));
    const auto node = nodes.find(cpu);
    found.push_back({.number = cpu,
                     .core = siblings && !siblings->empty() ? siblings->front() : cpu,
                     .node = node == nodes.end() ? 0 : node->second});
  }
  return found;
}

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  text = text.substr(0, text.find('\n'));
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    text.remove_prefix(std::min(range.size() + 1, text.size()));
    const size_t dash = range.find('-');
    const auto first = parse_number<int>(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number<int>(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::optional<std::vector<int>> control_group_cpus(const fs::path& membership, const fs::path& root) {
  std::optional<std::vector<int>> cpus;
  for (const fs::path& directory : control_group_directories(membership, root, "cpuset")) {
    for (const char* name : {"cpuset.cpus.effective", "cpuset.effective_cpus"}) {  // version 2, version 1
      if (auto found = read_cpu_list(directory / name); found && !found->empty()) cpus = std::move(found);
    }
  }
  return cpus;
}

}  // namespace lockstep
