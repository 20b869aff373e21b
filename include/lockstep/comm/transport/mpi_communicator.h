// Communicator over MPI for memory that the host can address.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

class ProcessGroup;
class ShmAllReduce;  // src/comm only

struct MpiCommunicatorOptions {
  double abort_seconds = 600;                    // longest wait in wait()
  int64_t elements_per_call = int64_t{1} << 30;  // longer operations are split: MPI counts are int
  bool shared_memory = false;                    // where all ranks are on one host
  CommObserver observer;                         // called on the communication thread
};

// One thread of its own drives all operations on a communicator of its own. It never blocks in MPI: operations are
// non-blocking, started in the order of the calls, many at a time, and advanced by MPI_Test with a back-off between,
// since Open MPI makes no progress while nobody calls it and the cores belong to computing. A single rank needs
// neither thread nor MPI: its operations have no effect.
//
// Sums in a shared_buffer() are not sent at all: the ranks' threads add them up in place. With nothing else on its way
// the thread sleeps until this rank or another rings.
class MpiCommunicator final : public Communicator {
 public:
  // Collective over the group, which must live longer. A wait() that stalls names the ranks that the group's board
  // knows to be missing.
  explicit MpiCommunicator(ProcessGroup& group, MpiCommunicatorOptions options = {});
  // Abandons what is not finished, which is right only when the job is being aborted.
  ~MpiCommunicator() override;

  int rank() const override;
  int size() const override;
  // Long ones in the order of ranks, each rank a share, so that no more bytes travel than in a ring.
  void all_reduce(Stream& stream, std::span<float> values, std::string_view label) override;
  void all_reduce(Stream& stream, std::span<double> values, std::string_view label) override;
  // Added in float32 in the order of ranks and rounded once.
  void all_reduce(Stream& stream, HalfSpan values, std::string_view label) override;
  // On an MPI communicator of its own, so that every rank may start it whatever else is on its way.
  double all_reduce_now(Stream& stream, std::span<float> values, std::string_view label) override;
  void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) override;
  double wait(Stream& stream) override;
  // Rank 0 warns where the ranks are on one host and yet cannot share memory.
  Buffer shared_buffer(size_t bytes) override;
  CommStatistics statistics() const override;
  bool stream_ordered() const override { return size() == 1; }

 private:
  class Driver;
  void report(const std::string& reason) const;

  ProcessGroup& group_;
  std::unique_ptr<ShmAllReduce> shared_;  // where memory is shared
  std::unique_ptr<Driver> driver_;        // none when there is one rank
};

}  // namespace lockstep
