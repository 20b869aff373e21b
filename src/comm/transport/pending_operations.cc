#include "comm/transport/pending_operations.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/clock.h"

namespace lockstep {

PendingOperations::PendingOperations(Comms comms, RankInfo info, HierarchicalAllReduce* shared,
                                     int64_t elements_per_call)
    : comms_(std::move(comms)),
      rank_(info.rank),
      all_ranks_(static_cast<size_t>(info.size)),
      shared_(shared),
      elements_per_call_(elements_per_call) {
  std::iota(all_ranks_.begin(), all_ranks_.end(), 0);
}

void PendingOperations::start(Operation operation) {
  Operation& started = operations_.emplace_back(std::move(operation));
  started.record.started = monotonic_seconds();
  if (started.shared) {
    started.shared->elements_per_call = elements_per_call_;
    started.shared->what = started.record.label;
    shared_->start(*started.shared);
  } else {
    start_pieces(started);
  }
}

void PendingOperations::start_pieces(Operation& operation) {
  for (int64_t first = 0; first < operation.count; first += elements_per_call_) {
    const int count = static_cast<int>(std::min(elements_per_call_, operation.count - first));
    std::byte* data = operation.data + first * operation.element_bytes;
    if (operation.kind == Operation::Kind::reduce_scatter) {
      operation.all_reduces.emplace_back(MpiAllReduce::Values{data, count, operation.dtype},
                                         MpiAllReduce::Group{comms_.in_order.get(), all_ranks_, rank_},
                                         operation.record.label);
      continue;
    }
    MPI_Request& request = operation.requests.emplace_back(MPI_REQUEST_NULL);
    const MPI_Comm comm = (operation.immediate ? comms_.immediate : comms_.in_order).get();
    const int status = operation.kind == Operation::Kind::all_reduce
                           ? MPI_Iallreduce(MPI_IN_PLACE, data, count, operation.type, MPI_SUM, comm, &request)
                           : MPI_Ibcast(data, count, operation.type, operation.root, comm, &request);
    check_mpi(status, operation.record.label);
  }
}

std::vector<Operation> PendingOperations::take_finished() {
  std::vector<Operation> finished;
  bool may_gather = true, may_gather_between_hosts = true;
  for (auto operation = operations_.begin(); operation != operations_.end();) {
    const bool done = operation->shared ? shared_->advance(*operation->shared, may_gather_between_hosts)
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
  check_mpi(
      MPI_Testall(static_cast<int>(operation.requests.size()), operation.requests.data(), &done, MPI_STATUSES_IGNORE),
      operation.record.label);
  for (MpiAllReduce& all_reduce : operation.all_reduces) {
    all_reduce.advance(may_gather);
    may_gather = may_gather && all_reduce.gather_started();
  }
  return done && std::ranges::all_of(operation.all_reduces, &MpiAllReduce::done);
}

bool PendingOperations::needs_polling() const {
  return std::ranges::any_of(operations_, [](const Operation& operation) {
    return !operation.shared || HierarchicalAllReduce::exchanging(*operation.shared);
  });
}

// Only the oldest operation counts, because the same delay also makes later ones late.
PendingOperations::OldestWait PendingOperations::oldest_wait() {
  for (Operation& operation : operations_) {
    if (operation.shared && shared_->hosts().hosts() > 1) {
      return {operation.index, true, shared_->stage(*operation.shared)};
    }
    for (MpiAllReduce& all_reduce : operation.all_reduces) {
      if (!all_reduce.done()) return {operation.index, false, {.straggler = all_reduce.straggler()}};
    }
  }
  return {};
}

// MPI may still write to receive buffers, so the operations and the communicators are leaked.
void PendingOperations::abandon() {
  (void)new std::deque<Operation>(std::move(operations_));
  (void)comms_.in_order.release();
  (void)comms_.immediate.release();
  if (shared_) shared_->abandon();
}

}  // namespace lockstep
