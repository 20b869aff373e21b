#include "comm/transport/peer_messages.h"

#include "comm/group/mpi_support.h"

namespace lockstep {

void PeerMessages::receive(int from, std::byte* to, int count) {
  if (count == 0) return;
  Pending& message = pending_.emplace_back(Pending{from, MPI_REQUEST_NULL});
  check_mpi(MPI_Irecv(to, count, line_.type, from, line_.tag, line_.comm, &message.request), what_);
}

void PeerMessages::send(int to, const std::byte* from, int count) {
  if (count == 0) return;
  Pending& message = pending_.emplace_back(Pending{to, MPI_REQUEST_NULL});
  check_mpi(MPI_Isend(from, count, line_.type, to, line_.tag, line_.comm, &message.request), what_);
}

// Asks until so many are found to be incomplete, and forgets those that are complete: however many ranks there are, one
// look in vain costs a few calls.
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
  constexpr size_t kOfOne = 2;  // one each way
  const size_t missing = incomplete(kOfOne + 1);
  if (missing == 0 || missing > kOfOne || pending_.front().peer != pending_.back().peer) return -1;
  return pending_.front().peer;
}

}  // namespace lockstep
