#include "app/core_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "app/rank_mapping.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/number_ranges.h"
#include "lockstep/comm/group/rank_names.h"

namespace lockstep {
namespace {

// Processors that ranks share, and the threads that compute on them.
struct Share {
  std::set<int> cpus;
  int ranks = 0;
  int threads = 0;
};

// Merges ranks that have a processor in common, directly or through others.
std::vector<Share> shares_of(std::span<const RankCores> ranks) {
  std::vector<Share> shares;
  for (const RankCores& rank : ranks) {
    Share merged{.cpus = {rank.cpus.begin(), rank.cpus.end()}, .ranks = 1, .threads = rank.threads};
    std::erase_if(shares, [&](const Share& share) {
      if (std::ranges::none_of(rank.cpus, [&](int cpu) { return share.cpus.contains(cpu); })) return false;
      merged.cpus.insert(share.cpus.begin(), share.cpus.end());
      merged.ranks += share.ranks;
      merged.threads += share.threads;
      return true;
    });
    shares.push_back(std::move(merged));
  }
  return shares;
}

int cores_among(std::span<const Processor> host, const std::set<int>& cpus) {
  std::set<int> cores;
  for (const Processor& processor : host) {
    if (cpus.contains(processor.number)) cores.insert(processor.core);
  }
  return static_cast<int>(cores.size());
}

bool straddles_nodes(std::span<const Processor> host, const RankCores& rank) {
  std::set<int> nodes;
  for (const Processor& processor : host) {
    if (std::ranges::binary_search(rank.cpus, processor.number)) nodes.insert(processor.node);
  }
  return nodes.size() > 1;
}

}  // namespace

std::string placement_options(std::span<const Processor> host, int ranks, int hosts) {
  const auto [map, cores] = map_ranks(host, ranks);
  const int threads_a_core = std::max(1, static_cast<int>(host.size()) / count_cores(host));
  return fmt::format(
      "'mpirun -np {} --map-by {}:PE={} --bind-to core', or 'srun --mpi=pmix --nodes={} --ntasks={} "
      "--ntasks-per-node={} --cpus-per-task={} --cpu-bind=cores'",
      ranks * hosts, map, cores, hosts, ranks * hosts, ranks, cores * threads_a_core);
}

std::vector<Finding> judge_placement(std::span<const Processor> host, std::span<const RankCores> ranks, int hosts) {
  const bool known = std::ranges::none_of(ranks, [](const RankCores& rank) { return rank.cpus.empty(); });
  if (host.empty() || !known) return {};
  const int cores = count_cores(host), nodes = count_nodes(host);
  const auto started = static_cast<int>(ranks.size());
  std::vector<Finding> findings;
  const auto add = [&](std::string what, int better) {
    findings.push_back({.what = std::move(what), .advice = placement_options(host, better, hosts)});
  };
  int busy = 0;
  for (const Share& share : shares_of(ranks)) {
    const auto cpus = static_cast<int>(share.cpus.size());
    busy += std::min(cores_among(host, share.cpus), share.threads);
    if (share.threads <= cpus) continue;
    add(fmt::format("{} compute with {} on {} ({})", counted(share.ranks, "rank"), counted(share.threads, "thread"),
                    counted(cpus, "processor"), number_ranges<int>(std::vector(share.cpus.begin(), share.cpus.end()))),
        std::min(started, cores));
  }
  const auto straddling = std::ranges::count_if(ranks, [&](const RankCores& r) { return straddles_nodes(host, r); });
  if (straddling > 0) {
    add(fmt::format("{} may run on several of {} NUMA nodes, and the memory of each is on one of them",
                    counted(straddling, "rank"), nodes),
        (std::max(started, nodes) + nodes - 1) / nodes * nodes);
  }
  constexpr double kNearlyAll = 0.9;
  const bool fill = std::ranges::all_of(ranks, [](const RankCores& rank) { return rank.fills_host; });
  if (fill && busy < kNearlyAll * cores) {
    add(fmt::format("{} compute on {} of {} cores", counted(started, "rank"), busy, cores), std::min(started, cores));
  }
  return findings;
}

std::vector<Finding> placement_findings(ProcessGroup& group, const Timeout& wait, const RankCores& mine) {
  const std::vector<std::string> lists = group.all_gather(number_ranges<int>(mine.cpus), wait);
  const int64_t own_threads = mine.threads;
  const std::vector<int64_t> threads = group.all_gather(std::span(&own_threads, 1), wait);
  const int64_t own_fills = mine.fills_host ? 1 : 0;
  const std::vector<int64_t> fills = group.all_gather(std::span(&own_fills, 1), wait);
  const std::vector<int64_t>& first = group.first_on_host();
  std::vector<RankCores> ranks;
  for (int r = 0; r < group.size(); ++r) {
    if (first[r] != first[group.rank()]) continue;
    ranks.push_back(
        {parse_cpu_list(lists[r]).value_or(std::vector<int>{}), static_cast<int>(threads[r]), fills[r] != 0});
  }
  const auto hosts = static_cast<int>(std::set(first.begin(), first.end()).size());
  std::string text;  // "finding NUL advice NUL ..." of this host, from its first rank
  if (group.local_rank() == 0) {
    for (const Finding& finding : judge_placement(processors_of_job(), ranks, hosts)) {
      text += finding.what + '\0' + finding.advice + '\0';
    }
  }
  std::vector<Finding> findings;
  for (const auto& [found, judges] : group_ranks(group.all_gather(text, wait))) {
    std::vector<std::string> names;
    for (const int rank : judges) names.push_back(group.host(rank));
    std::string_view rest = found;
    const auto next = [&] {
      const std::string_view part = rest.substr(0, rest.find('\0'));
      rest.remove_prefix(part.size() + 1);
      return std::string(part);
    };
    while (!rest.empty()) {
      const std::string what = fmt::format("on {}, {}", fold_hosts(names), next());
      findings.push_back({.what = what, .advice = next()});
    }
  }
  return findings;
}

}  // namespace lockstep
