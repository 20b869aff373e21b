// Heartbeats: every rank regularly sends its position to other ranks, so that each rank can report which ones are
// behind.
#pragma once

#include <memory>

#include "lockstep/comm/supervision/progress_board.h"

namespace lockstep {

class MpiSession;

struct HeartbeatOptions {
  double interval_seconds = 0.25;
  // The most bytes that a rank sends at a time; one heartbeat is always sent. A heartbeat has the positions of all
  // ranks. The default keeps the heartbeats of 1,024 ranks, 64 to a host, below 0.2 Gb/s on the link of a host.
  int bytes_per_turn = 65536;
  double contact_seconds = 600;  // time limit of the constructor
  double shutdown_seconds = 5;   // time limit of the destructor's wait for the other ranks' last heartbeats
};

// Owned by main, which creates it right after MpiSession and destroys it before; the board must outlive it. It runs a
// thread of its own on an MPI communicator of its own. The thread never blocks in MPI.
//
// Several times a second, each rank sends its knowledge of all ranks to the ranks at distance 1, 2, 4, ...; in jobs of
// more than about a hundred ranks, to some of them in turn. Information reaches every rank within about log2(size)
// heartbeats and over several paths, so a hung rank does not interrupt it. A rank gets no new message while the
// previous one is still in flight.
class Heartbeats {
 public:
  // Collective. Sets this rank's number and the number of ranks on the board. Throws Error(stalled) if the other ranks
  // do not take part within contact_seconds.
  Heartbeats(const MpiSession& session, ProgressBoard& board, HeartbeatOptions options = {});
  // Collective when all ranks end together. Waits at most shutdown_seconds for the last heartbeats, so that no message
  // is in flight when MPI is finalized.
  ~Heartbeats();
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;  // null if there is only one rank
};

}  // namespace lockstep
