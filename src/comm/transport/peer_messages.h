// The messages of one exchange between a rank and the others.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// At most one to and one from each other rank. It knows whose are missing, so that a slow one can be told.
//
// Owned and driven by the communication thread. The memory must be left alone until all are complete, even when this
// object goes away before.
class PeerMessages {
 public:
  // Every rank must begin its messages of one tag in one order.
  struct Line {
    MPI_Comm comm;
    int tag;
    MPI_Datatype type;
  };
  PeerMessages(const Line& line, std::string what) : line_(line), what_(std::move(what)) {}

  // Of so many elements; none is sent for nothing.
  void receive(int from, std::byte* to, int count);
  void send(int to, const std::byte* from, int count);

  // Lets them go on.
  bool complete() { return incomplete(1) == 0; }
  // The one rank whose messages are all that is missing, or that has not taken what was sent to it; -1: none, several.
  int only_missing_rank();

 private:
  struct Pending {
    int peer;
    MPI_Request request;
  };
  size_t incomplete(size_t enough);

  Line line_;
  std::string what_;
  std::vector<Pending> pending_;
};

}  // namespace lockstep
