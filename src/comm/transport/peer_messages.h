// The point-to-point messages of one exchange between this rank and the others.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// At most one message to and one from each other rank. It tracks which ranks' messages are missing, so that a straggler
// can be identified.
//
// Owned and driven by the communication thread. The memory of the messages must not be accessed until all are complete,
// even if this object is destroyed before.
class PeerMessages {
 public:
  // Every rank must start its messages with the same tag in the same order.
  struct Channel {
    MPI_Comm comm;
    int tag;
    MPI_Datatype type;
  };
  PeerMessages(const Channel& channel, std::string what) : channel_(channel), what_(std::move(what)) {}

  // Start a message of `count` elements; no message is sent if `count` is 0.
  void receive(int from, std::byte* to, int count);
  void send(int to, const std::byte* from, int count);

  // Makes progress without blocking. Returns whether all messages are complete.
  bool complete() { return incomplete(1) == 0; }
  // Returns the only rank with incomplete messages (it has not sent, or not received what was sent to it), or -1 if
  // there is none or more than one.
  int only_missing_rank();

 private:
  struct Pending {
    int peer;
    MPI_Request request;
  };
  size_t incomplete(size_t enough);

  Channel channel_;
  std::string what_;
  std::vector<Pending> pending_;
};

}  // namespace lockstep
