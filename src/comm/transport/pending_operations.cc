#include "comm/transport/pending_operations.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/clock.h"

namespace lockstep {

void PendingOperations::begin(Operation operation) {
  Operation& begun = operations_.emplace_back(std::move(operation));
  begun.record.started = monotonic_seconds();
  if (begun.shared) {
    begun.shared_number = shared_->begin();
  } else {
    begin_pieces(begun);
  }
}

void PendingOperations::begin_pieces(Operation& operation) {
  for (int64_t first = 0; first < operation.count; first += elements_per_call_) {
    const int count = static_cast<int>(std::min(elements_per_call_, operation.count - first));
    std::byte* data = operation.data + first * operation.element_bytes;
    if (operation.kind == Operation::Kind::reduce_scatter) {
      operation.shares.emplace_back(MpiAllReduce::Values{data, count, operation.dtype},
                                    MpiAllReduce::Place{comms_.in_order.get(), place_.rank, place_.size},
                                    operation.record.label);
      continue;
    }
    MPI_Request& request = operation.pieces.emplace_back(MPI_REQUEST_NULL);
    const MPI_Comm comm = (operation.at_once ? comms_.at_once : comms_.in_order).get();
    const int status = operation.kind == Operation::Kind::sum
                           ? MPI_Iallreduce(MPI_IN_PLACE, data, count, operation.type, MPI_SUM, comm, &request)
                           : MPI_Ibcast(data, count, operation.type, operation.root, comm, &request);
    check_mpi(status, operation.record.label);
  }
}

std::vector<Operation> PendingOperations::take_finished() {
  std::vector<Operation> finished;
  bool may_gather = true;
  for (auto operation = operations_.begin(); operation != operations_.end();) {
    const bool done = operation->shared ? shared_->advance(operation->shared_number, *operation->shared)
                                        : advance(*operation, may_gather);
    if (!done) {
      ++operation;
      continue;
    }
    operation->record.finished = monotonic_seconds();
    finished.push_back(std::move(*operation));
    operation = operations_.erase(operation);
  }
  return finished;
}

bool PendingOperations::advance(Operation& operation, bool& may_gather) {
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(operation.pieces.size()), operation.pieces.data(), &done, MPI_STATUSES_IGNORE),
            operation.record.label);
  for (MpiAllReduce& sum : operation.shares) {
    sum.advance(may_gather);
    may_gather = may_gather && sum.gathers();
  }
  return done && std::ranges::all_of(operation.shares, &MpiAllReduce::done);
}

bool PendingOperations::needs_polling() const {
  return std::ranges::any_of(operations_, [](const Operation& operation) { return !operation.shared; });
}

// Later sums are late by the same messages' delay: it counts once.
int PendingOperations::straggler() {
  for (Operation& operation : operations_) {
    for (MpiAllReduce& sum : operation.shares) {
      if (!sum.done()) return sum.straggler();
    }
  }
  return -1;
}

// MPI may still write what it receives, so the memory stays, too.
void PendingOperations::abandon() {
  (void)new std::deque<Operation>(std::move(operations_));
  (void)comms_.in_order.release();
  (void)comms_.at_once.release();
}

}  // namespace lockstep
