// Operations of a communicator over MPI that have been begun.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "comm/group/mpi_support.h"
#include "comm/transport/mpi_all_reduce.h"
#include "comm/transport/shm_all_reduce.h"
#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

// One call of the user, as it waits to be begun or is in progress.
struct Operation {
  enum class Kind { sum, reduce_scatter, broadcast };
  Kind kind = Kind::sum;
  std::byte* data = nullptr;
  int64_t count = 0;  // elements
  int64_t element_bytes = 1;
  MPI_Datatype type = MPI_BYTE;
  DType dtype = DType::f32;  // of a sum
  int root = 0;
  bool at_once = false;
  size_t index = 0;  // since the last join
  CommRecord record;
  std::vector<MPI_Request> pieces;
  std::vector<MpiAllReduce> shares;  // the pieces of a sum by shares
  std::optional<ShmRange> shared;    // of a sum in memory that the ranks share
  int64_t shared_number = 0;
};

// Begins operations, in one order on every rank, lets them go on and gives back those that are done.
//
// Owned by the communicator and used by its communication thread alone; by others when that has ended.
class PendingOperations {
 public:
  // The MPI communicators: in each, operations are begun in one order on every rank.
  struct Comms {
    CommHandle in_order, at_once;
  };
  struct Place {
    int rank, size;
  };
  PendingOperations(Comms comms, Place place, ShmAllReduce* shared, int64_t elements_per_call)
      : comms_(std::move(comms)), place_(place), shared_(shared), elements_per_call_(elements_per_call) {}

  void begin(Operation operation);
  // Lets all operations go on; those that are complete leave.
  std::vector<Operation> take_finished();

  size_t size() const { return operations_.size(); }
  bool empty() const { return operations_.empty(); }
  // Whether MPI is in it, which must be asked again and again.
  bool needs_polling() const;
  // The rank for which alone the oldest sum by shares waits; -1: none, several.
  int straggler();

  // What is pending never ends: the job is being aborted. Its memory is left to MPI.
  void abandon();

 private:
  void begin_pieces(Operation& operation);
  bool advance(Operation& operation, bool& may_gather);

  Comms comms_;
  const Place place_;
  ShmAllReduce* const shared_;  // null: all goes through MPI
  const int64_t elements_per_call_;
  std::deque<Operation> operations_;
};

}  // namespace lockstep
