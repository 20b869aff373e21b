#include "comm/transport/host_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep {

HostLayout::HostLayout(std::span<const int64_t> first_on_host, int rank) {
  std::map<int64_t, std::vector<int>> ranks;
  for (size_t r = 0; r < first_on_host.size(); ++r) ranks[first_on_host[r]].push_back(static_cast<int>(r));
  for (auto& [first, local] : ranks) {
    if (first == first_on_host[static_cast<size_t>(rank)]) {
      host_ = static_cast<int>(ranks_.size());
      local_index_ = static_cast<int>(std::ranges::find(local, rank) - local.begin());
    }
    lanes_.count = std::max(lanes_.count, static_cast<int>(local.size()));
    ranks_.push_back(std::move(local));
  }
  const int mine = static_cast<int>(local_ranks().size());
  lanes_.begin = lanes_.count * local_index_ / mine;
  lanes_.end = lanes_.count * (local_index_ + 1) / mine;
}

std::vector<int> HostLayout::lane_ranks(int lane) const {
  std::vector<int> ranks;
  for (const std::vector<int>& local : ranks_) {
    const int size = static_cast<int>(local.size());
    ranks.push_back(local[static_cast<size_t>(((lane + 1) * size - 1) / lanes_.count)]);
  }
  return ranks;
}

std::string HostLayout::describe() const {
  const auto [fewest, most] = std::ranges::minmax(ranks_, {}, &std::vector<int>::size);
  if (fewest.size() < most.size())
    return fmt::format("{} hosts with {} to {} ranks", hosts(), fewest.size(), most.size());
  return fmt::format("{} hosts with {} rank{} each", hosts(), most.size(), most.size() == 1 ? "" : "s");
}

}  // namespace lockstep
