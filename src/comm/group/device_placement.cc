#include "lockstep/comm/group/device_placement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

int device_of(const LocalRankInfo& rank) {
  require(rank.local_rank >= 0 && rank.visible_devices > 0, "local rank {} with {} devices", rank.local_rank,
          rank.visible_devices);
  return rank.local_rank % rank.visible_devices;
}

DeviceKind agree_on_kind(bool gpu_required, std::span<const RankDevice> ranks) {
  const auto without = std::ranges::find_if(ranks, [](const RankDevice& r) { return !r.reason.empty(); });
  if (without == ranks.end()) return DeviceKind::gpu;
  if (gpu_required) {
    fail(ExitCode::config, "device.kind = \"gpu\", but on {}: {}", without->rank, without->reason);
  }
  const auto with = std::ranges::find_if(ranks, [](const RankDevice& r) { return r.reason.empty(); });
  if (with == ranks.end()) return DeviceKind::cpu;
  fail(ExitCode::config,
       "{} has a GPU, but on {}: {}; give every rank one, or set device.kind = \"cpu\" to compute on the CPUs of all",
       with->rank, without->rank, without->reason);
}

bool devices_are_shared(std::span<const RankDevice> ranks, bool share) {
  std::map<std::pair<std::string, std::string>, const RankDevice*> users;  // the first rank per host and device
  for (const RankDevice& rank : ranks) {
    const auto [user, is_first] = users.try_emplace({rank.host, rank.id}, &rank);
    if (is_first) continue;
    if (share) return true;
    fail(ExitCode::config,
         "{} and {} would compute on the same GPU, {}: start as many ranks a host as it has GPUs, or set device.share "
         "= true to let ranks share them",
         user->second->rank, rank.rank, rank.id);
  }
  return false;
}

std::vector<RankDevice> gather_devices(ProcessGroup& group, const RankDevice& mine, const Timeout& wait) {
  const std::vector<std::string> reasons = group.all_gather(mine.reason, wait);
  const std::vector<std::string> ids = group.all_gather(mine.id, wait);
  std::vector<RankDevice> all;
  for (int r = 0; r < group.size(); ++r) {
    const auto i = static_cast<size_t>(r);
    all.push_back({.rank = group.describe(r), .host = group.host(r), .reason = reasons[i], .id = ids[i]});
  }
  return all;
}

}  // namespace lockstep
