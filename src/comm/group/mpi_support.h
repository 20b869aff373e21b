// MPI helpers of this layer: checked calls, an owning communicator handle, and waits that poll instead of blocking.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/unique_handle.h"

namespace lockstep {

// Throws Error(internal) with MPI's error text unless `status` is MPI_SUCCESS. This works because the communicators of
// this layer return errors instead of aborting (MPI_ERRORS_RETURN).
void check_mpi(int status, std::string_view what);

// MPI implementations free communicators locally, so a rank that exits early does not wait here for the others.
struct CommTraits {
  using type = MPI_Comm;
  static MPI_Comm invalid() { return MPI_COMM_NULL; }
  static void destroy(MPI_Comm comm) noexcept;
};
using CommHandle = UniqueHandle<CommTraits>;

// The deadline of a polling wait. Time during which the process was suspended does not count: passed() counts at most
// two seconds per call.
class Deadline {
 public:
  explicit Deadline(double seconds);
  bool passed();

 private:
  double remaining_;
  double last_poll_;
};

// Pauses between polls. It yields at first and then sleeps for increasing times, because answers either arrive
// immediately or take a while.
class Backoff {
 public:
  void pause();

 private:
  static constexpr int kYields = 200;
  static constexpr std::chrono::microseconds kShortest{20};
  static constexpr std::chrono::microseconds kLongest{1000};
  int yields_ = 0;
  std::chrono::microseconds sleep_ = kShortest;
};

// Polls until all requests are complete. Returns false if the deadline passes first; the requests are then still in
// progress, and their buffers must stay alive.
bool wait_all(std::span<MPI_Request> requests, Deadline& deadline, std::string_view what);

// Collective. Duplicates `comm`; the duplicate returns errors instead of aborting. `what` names the operation in
// messages. Throws Error(stalled) if the other ranks do not take part within `seconds`.
CommHandle duplicate(MPI_Comm comm, double seconds, std::string_view what);

}  // namespace lockstep
