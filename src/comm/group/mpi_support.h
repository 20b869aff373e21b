// What the users of MPI in this layer share: checked calls, the communicator handle, waiting without blocking.
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

// Throws Error(internal) with MPI's own text. Communicators of this layer return errors instead of aborting.
void check_mpi(int status, std::string_view what);

// Freeing is local in MPI implementations, so a rank that leaves early does not wait here for the others.
struct CommTraits {
  using type = MPI_Comm;
  static MPI_Comm invalid() { return MPI_COMM_NULL; }
  static void destroy(MPI_Comm comm) noexcept;
};
using CommHandle = UniqueHandle<CommTraits>;

// A limit for a wait that polls. Time in which the process stood still (suspended, then continued) does not count.
class Deadline {
 public:
  explicit Deadline(double seconds);
  bool passed();

 private:
  double left_;
  double last_poll_;
};

// Sleeps between polls, longer and longer: answers come at once or take a while.
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

// Polls until all requests are complete; false when the deadline passed first (they are then still in progress).
bool wait_all(std::span<MPI_Request> requests, Deadline& deadline, std::string_view what);

// A copy of `comm` that returns errors; collective. Throws Error(stalled) when the other ranks do not take part.
CommHandle duplicate(MPI_Comm comm, double seconds, std::string_view what);

}  // namespace lockstep
