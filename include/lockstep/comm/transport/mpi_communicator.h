// A Communicator over MPI, for memory that the host can address.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

class ProcessGroup;
class HierarchicalAllReduce;  // src/comm only

struct MpiCommunicatorOptions {
  double abort_seconds = 600;                    // time limit of wait()
  int64_t elements_per_call = int64_t{1} << 30;  // longer operations are split, because MPI counts are int
  bool shared_memory = false;                    // reduce in shared memory within each host
  // By rank, as ProcessGroup::first_on_host(), whose hosts are used if it is empty. Tests have hosts of their own.
  std::vector<int64_t> first_on_host;
  CommObserver observer;  // called on the communication thread
};

// A communication thread runs all operations on MPI communicators of its own. It never blocks in MPI: it starts
// non-blocking operations in the order of the calls, keeps many in flight, and advances them with MPI_Test. It polls
// because Open MPI makes no progress unless it is called, and it backs off between polls because the cores are needed
// for computation. A single rank needs neither the thread nor MPI; its operations have no effect.
//
// Sums in a shared_buffer() are not sent within a host: the ranks' communication threads add them in place, and
// exchange only the sums of whole hosts (HierarchicalAllReduce). If no message is in flight, the thread sleeps until
// this rank or another one rings its doorbell.
class MpiCommunicator final : public Communicator {
 public:
  // Collective over the group, which must outlive it. If wait() times out, its error names the missing ranks from the
  // group's progress board.
  explicit MpiCommunicator(ProcessGroup& group, MpiCommunicatorOptions options = {});
  // Abandons unfinished operations, which is correct only if the job is being aborted.
  ~MpiCommunicator() override;

  int rank() const override;
  int size() const override;
  // Short sums use MPI_Iallreduce. Long ones use reduce-scatter and all-gather (MpiAllReduce): each rank adds its share
  // in rank order, and no more bytes are sent than in a ring.
  void all_reduce(Stream& stream, std::span<float> values, std::string_view label) override;
  void all_reduce(Stream& stream, std::span<double> values, std::string_view label) override;
  // The terms are added in float32 in rank order and rounded once.
  void all_reduce(Stream& stream, HalfSpan values, std::string_view label) override;
  void all_reduce_rounded(Stream& stream, std::span<float> values, DType wire, std::string_view label) override;
  bool rounds_between_hosts(std::span<const float> values) const override;
  // Uses a separate MPI communicator, so that every rank may start it regardless of what else is in flight.
  double all_reduce_now(Stream& stream, std::span<float> values, std::string_view label) override;
  void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) override;
  double wait(Stream& stream) override;
  // Rank 0 logs a warning if ranks of one host cannot share memory.
  Buffer shared_buffer(size_t bytes) override;
  std::string plan() const override;
  CommStatistics statistics() const override;
  bool stream_ordered() const override { return size() == 1; }

 private:
  class Driver;
  void not_shared(const std::string& reason);

  ProcessGroup& group_;
  std::unique_ptr<HierarchicalAllReduce> shared_;  // null if the ranks share no memory
  std::string plan_;                               // of the sums that are not in a shared_buffer()
  bool has_buffer_ = false;
  std::unique_ptr<Driver> driver_;  // null if there is only one rank
};

}  // namespace lockstep
