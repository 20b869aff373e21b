#include "comm/transport/peer_messages.h"

#include "comm/group/mpi_support.h"

namespace lockstep {

void PeerMessages::receive(int from, std::byte* to, int count) {
  if (count == 0) return;
  Pending& message = pending_.emplace_back(Pending{from, MPI_REQUEST_NULL});
  check_mpi(MPI_Irecv(to, count, channel_.type, from, channel_.tag, channel_.comm, &message.request), what_);
}

void PeerMessages::send(int to, const std::byte* from, int count) {
  if (count == 0) return;
  Pending& message = pending_.emplace_back(Pending{to, MPI_REQUEST_NULL});
  check_mpi(MPI_Isend(from, count, channel_.type, to, channel_.tag, channel_.comm, &message.request), what_);
}

// Tests messages until `enough` are found to be incomplete, and removes the complete ones. So a call without progress
// costs only a few MPI calls, however many ranks there are. Returns the number of incomplete messages found.
size_t PeerMessages::incomplete(size_t enough) {
  size_t found = 0;
  for (size_t i = pending_.size(); i-- > 0 && found < enough;) {
    int done = 0;
    check_mpi(MPI_Test(&pending_[i].request, &done, MPI_STATUS_IGNORE), what_);
    if (done) {
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++found;
    }
  }
  return found;
}

int PeerMessages::only_missing_rank() {
  constexpr size_t kMessagesPerPeer = 2;  // one in each direction
  const size_t missing = incomplete(kMessagesPerPeer + 1);
  if (missing == 0 || missing > kMessagesPerPeer || pending_.front().peer != pending_.back().peer) return -1;
  return pending_.front().peer;
}

}  // namespace lockstep
