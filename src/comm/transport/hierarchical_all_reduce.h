// An all-reduce (sum) in two stages: in shared memory within each host, over MPI between hosts.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/group/mpi_support.h"
#include "comm/transport/host_layout.h"
#include "comm/transport/mpi_all_reduce.h"
#include "comm/transport/shm_all_reduce.h"

namespace lockstep {

// Each rank adds up its lanes over its host (ShmAllReduce), exchanges each lane's sum with the ranks that have the same
// lane on the other hosts (MpiAllReduce), and copies the totals to the ranks of its host. So a host sends as much as a
// single rank would, however many ranks it has, and all of its ranks take part. On a single host the first stage does
// everything. Terms are added in the order of ranks, then of hosts, independently of timing. If the format between
// hosts is 16-bit, the sum of each host is rounded to it, the hosts' sums are added in float32, and the total is
// rounded.
//
// All ranks perform the same sums in the same order. Owned by a communicator. The thread that runs the step calls
// allocate() and find(); the communication thread calls start(), advance() and stage().
class HierarchicalAllReduce {
 public:
  struct Result {
    std::unique_ptr<HierarchicalAllReduce> all_reduce;
    std::string reason;  // if `all_reduce` is null: which rank failed and why
  };
  // Collective over the group. `comm` is not used for anything else.
  static Result make(ProcessGroup& group, HostLayout hosts, CommHandle comm);

  // A sum in progress.
  struct Sum {
    ShmRange range;
    DType wire = DType::f32;  // the format between hosts: f32, bf16 or f16
    int64_t elements_per_call = 0;
    std::string what;  // for messages
    int64_t number = 0;
    bool exchanging = false;                    // between hosts
    std::vector<std::vector<uint16_t>> halves;  // by lane: what travels, unless it is f32
    std::vector<MpiAllReduce> exchanges;
  };
  // The stage in which a sum waits.
  struct Stage {
    bool between_hosts = false;
    int straggler = -1;  // the only rank that is waited for; -1 if it is none or several
  };

  const HostLayout& hosts() const { return hosts_; }
  ShmAllReduce& local() { return *local_; }
  // Returns whether these values can be summed here.
  std::optional<ShmRange> find(std::span<const std::byte> values, DType type) const;

  void start(Sum& sum);
  // Advances the sum without blocking; earlier ones must be advanced first. Returns whether it is done on all ranks of
  // this host. All-gathers start in order: see MpiAllReduce.
  bool advance(Sum& sum, bool& may_gather);
  Stage stage(Sum& sum) const;
  // Returns whether messages of the sum are in flight.
  static bool exchanging(const Sum& sum);
  // Gives up all sums because the job is being aborted. MPI may still use the communicator, so it is leaked.
  void abandon() { (void)comm_.release(); }

 private:
  HierarchicalAllReduce(std::unique_ptr<ShmAllReduce> local, HostLayout hosts, CommHandle comm);
  std::span<float> lane(const Sum& sum, size_t index) const;  // in this rank's memory
  void start_exchanges(Sum& sum) const;

  const std::unique_ptr<ShmAllReduce> local_;
  const HostLayout hosts_;
  CommHandle comm_;
  std::vector<std::vector<int>> lanes_;  // this rank's, from hosts_.lanes().begin on: the rank of each host
};

}  // namespace lockstep
