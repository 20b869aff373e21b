#include "comm/transport/host_layout.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "test/catch.h"

using namespace lockstep;

namespace {

std::vector<int> local_ranks(const HostLayout& hosts) {
  return {hosts.local_ranks().begin(), hosts.local_ranks().end()};
}

}  // namespace

TEST_CASE("hosts are known by their lowest ranks, in any placement") {
  const HostLayout hosts(std::vector<int64_t>{0, 1, 0, 1, 1}, 3);
  CHECK(hosts.hosts() == 2);
  CHECK(hosts.host() == 1);
  CHECK(local_ranks(hosts) == std::vector<int>{1, 3, 4});
  CHECK(hosts.local_index() == 1);
  CHECK(hosts.describe() == "2 hosts with 2 to 3 ranks");
  CHECK(HostLayout(std::vector<int64_t>{0, 0, 2, 2}, 0).describe() == "2 hosts with 2 ranks each");
  CHECK(HostLayout(std::vector<int64_t>{0, 1, 2}, 0).describe() == "3 hosts with 1 rank each");
}

TEST_CASE("on every host each lane has one rank, and each rank at least one lane") {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1}, {4}, {2, 2}, {2, 1}, {1, 5}, {3, 4, 7}}) {
    std::vector<int64_t> first;
    for (const int64_t size : sizes)
      first.insert(first.end(), static_cast<size_t>(size), static_cast<int64_t>(first.size()));
    std::vector<std::vector<int>> owners;  // by lane, from the lanes of the ranks
    for (int rank = 0; rank < static_cast<int>(first.size()); ++rank) {
      const HostLayout::Lanes lanes = HostLayout(first, rank).lanes();
      CHECK(lanes.count == *std::ranges::max_element(sizes));
      CHECK(lanes.begin < lanes.end);
      owners.resize(static_cast<size_t>(lanes.count));
      for (int lane = lanes.begin; lane < lanes.end; ++lane) owners[static_cast<size_t>(lane)].push_back(rank);
    }
    for (int rank = 0; rank < static_cast<int>(first.size()); ++rank) {
      const HostLayout hosts(first, rank);
      for (int lane = 0; lane < hosts.lanes().count; ++lane) {
        CHECK(hosts.lane_ranks(lane) == owners[static_cast<size_t>(lane)]);
        CHECK(hosts.lane_ranks(lane).size() == sizes.size());
      }
    }
  }
}
