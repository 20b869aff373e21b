// Which ranks are on which host, and who sums which lane of the gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// A sum over several hosts is divided into lanes, as many as the host with most ranks has ranks. On every host, each
// rank sums the lanes of one contiguous range, which is empty for no rank. So a lane belongs to one rank of each host.
class HostLayout {
 public:
  struct Lanes {
    int begin = 0, end = 1;  // those of this rank
    int count = 1;           // of all
  };

  // `first_on_host` is that of ProcessGroup: hosts are in the order of their lowest ranks.
  HostLayout(std::span<const int64_t> first_on_host, int rank);

  int hosts() const { return static_cast<int>(ranks_.size()); }
  // This host's ranks, in ascending order, and this rank's index among them.
  std::span<const int> local_ranks() const { return ranks_[host_]; }
  int local_index() const { return local_index_; }
  int host() const { return host_; }
  const Lanes& lanes() const { return lanes_; }
  // The rank of each host, in the order of hosts, that sums this lane.
  std::vector<int> lane_ranks(int lane) const;
  // "2 hosts with 4 ranks each", "3 hosts with 1 to 4 ranks"
  std::string describe() const;

 private:
  std::vector<std::vector<int>> ranks_;  // by host
  int host_ = 0, local_index_ = 0;
  Lanes lanes_;
};

}  // namespace lockstep
