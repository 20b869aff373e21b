// The operations of an MpiCommunicator that are in flight.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "comm/group/mpi_support.h"
#include "comm/transport/hierarchical_all_reduce.h"
#include "comm/transport/mpi_all_reduce.h"
#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

// One call of the user that is queued or in flight.
struct Operation {
  // all_reduce uses MPI_Iallreduce, reduce_scatter uses MpiAllReduce (reduce-scatter and all-gather).
  enum class Kind { all_reduce, reduce_scatter, broadcast };
  Kind kind = Kind::all_reduce;
  std::byte* data = nullptr;
  int64_t count = 0;  // elements
  int64_t element_bytes = 1;
  MPI_Datatype type = MPI_BYTE;
  DType dtype = DType::f32;  // of an all-reduce
  DType wire = DType::f32;   // of an all-reduce in shared memory: the format between hosts
  int root = 0;              // of a broadcast
  bool immediate = false;    // it was called as all_reduce_now()
  size_t index = 0;          // among the operations since the last wait()
  CommRecord record;
  std::vector<MPI_Request> requests;                 // one per piece
  std::vector<MpiAllReduce> all_reduces;             // one per piece, for Kind::reduce_scatter
  std::optional<HierarchicalAllReduce::Sum> shared;  // set if the memory is shared by the ranks of a host
};

// Starts operations in the same order on every rank, advances them, and returns those that are done.
//
// Owned by the communicator. Only its communication thread uses it, and other threads after that thread has ended.
class PendingOperations {
 public:
  // The MPI communicators. On each of them, every rank starts its operations in the same order; those of
  // all_reduce_now() have their own because they overtake others.
  struct Comms {
    CommHandle in_order, immediate;
  };
  struct RankInfo {
    int rank, size;
  };
  PendingOperations(Comms comms, RankInfo info, HierarchicalAllReduce* shared, int64_t elements_per_call);

  void start(Operation operation);
  // Advances all operations without blocking; removes and returns those that are complete.
  std::vector<Operation> take_finished();

  size_t size() const { return operations_.size(); }
  bool empty() const { return operations_.empty(); }
  // Returns whether an operation uses MPI, which progresses only while it is polled.
  bool needs_polling() const;
  // The stage and the straggler of the oldest operation that uses messages.
  struct OldestWait {
    size_t index = 0;         // of the operation, among those since the last wait()
    bool two_stages = false;  // whether it has the stage below; otherwise only the straggler is meaningful
    HierarchicalAllReduce::Stage stage;
  };
  OldestWait oldest_wait();

  // Gives up all operations because the job is being aborted. Their state is leaked, since MPI may still access it.
  void abandon();

 private:
  void start_pieces(Operation& operation);
  bool advance(Operation& operation, bool& may_gather);

  Comms comms_;
  const int rank_;
  std::vector<int> all_ranks_;
  HierarchicalAllReduce* const shared_;  // null if all operations use MPI
  const int64_t elements_per_call_;
  std::deque<Operation> operations_;
};

}  // namespace lockstep
