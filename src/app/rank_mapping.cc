#include "app/rank_mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lockstep {
namespace {

int count(std::span<const Processor> host, int Processor::*what) {
  std::set<int> values;
  for (const Processor& processor : host) values.insert(processor.*what);
  return static_cast<int>(values.size());
}

}  // namespace

RankMapping map_ranks(std::span<const Processor> host, int ranks) {
  const int nodes = count_nodes(host);
  const bool by_node = nodes > 1 && ranks % nodes == 0;
  return {.map = by_node ? fmt::format("ppr:{}:numa", ranks / nodes) : fmt::format("ppr:{}:node", ranks),
          .cores = std::max(1, count_cores(host) / ranks)};
}

int count_cores(std::span<const Processor> host) { return count(host, &Processor::core); }
int count_nodes(std::span<const Processor> host) { return count(host, &Processor::node); }

std::vector<Processor> processors_of_job() {
  std::vector<Processor> host = processors_of("/sys/devices/system");
  if (const auto allowed = control_group_cpus("/proc/self/cgroup", "/sys/fs/cgroup")) {
    std::erase_if(host, [&](const Processor& p) { return !std::ranges::binary_search(*allowed, p.number); });
  }
  return host;
}

}  // namespace lockstep
