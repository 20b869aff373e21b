#include "comm/group/mpi_support.h"

#include <algorithm>
#include <array>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep {

void check_mpi(int status, std::string_view what) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  fail(ExitCode::internal, "{}: MPI reports '{}'", what, std::string_view(text.data(), static_cast<size_t>(length)));
}

void CommTraits::destroy(MPI_Comm comm) noexcept {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&comm);
}

Deadline::Deadline(double seconds) : remaining_(seconds), last_poll_(monotonic_seconds()) {}

bool Deadline::passed() {
  constexpr double kLongestPoll = 2;
  const double now = monotonic_seconds();
  remaining_ -= std::min(now - last_poll_, kLongestPoll);
  last_poll_ = now;
  return remaining_ <= 0;
}

void Backoff::pause() {
  if (yields_ < kYields) {
    ++yields_;
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(sleep_ * 2, kLongest);
}

bool wait_all(std::span<MPI_Request> requests, Deadline& deadline, std::string_view what) {
  Backoff backoff;
  while (true) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), what);
    if (done) return true;
    if (deadline.passed()) return false;
    backoff.pause();
  }
}

CommHandle duplicate(MPI_Comm comm, double seconds, std::string_view what) {
  // On the heap, because MPI may still write to it after a timeout.
  auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(comm, copy.get(), &request), what);
  Deadline deadline(seconds);
  if (!wait_all({&request, 1}, deadline, what)) {
    (void)copy.release();
    fail(ExitCode::stalled, "{}: some ranks did not arrive within {:g} s; see which of them wrote no log line", what,
         seconds);
  }
  CommHandle handle(*copy);
  check_mpi(MPI_Comm_set_errhandler(handle.get(), MPI_ERRORS_RETURN), what);
  return handle;
}

}  // namespace lockstep
