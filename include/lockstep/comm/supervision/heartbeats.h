// Heartbeats: every rank tells others where it is, so that each can say who is behind.
#pragma once

#include <memory>

#include "lockstep/comm/supervision/progress_board.h"

namespace lockstep {

class MpiSession;

struct HeartbeatOptions {
  double interval_seconds = 0.25;
  double contact_seconds = 600;  // limit of the first contact
  double farewell_seconds = 5;   // longest wait for the others' last heartbeat
};

// Owned by main, made right after MpiSession and destroyed before it; the board must live longer. One thread of its
// own, on a communicator of its own, which never blocks in MPI.
//
// Several times a second each rank sends what it knows of all ranks to the ranks at distance 1, 2, 4, ... So news
// reach everyone within log2(size) heartbeats and over several ways: a rank that stands still is no gap. While a
// message to a rank is still on its way, that rank gets no other.
class Heartbeats {
 public:
  // Collective. Gives the board this rank's number and the number of ranks. Throws Error(stalled).
  Heartbeats(const MpiSession& session, ProgressBoard& board, HeartbeatOptions options = {});
  // Collective in an agreed ending: waits a little for the last heartbeats.
  ~Heartbeats();
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;

 private:
  class Pulse;
  std::unique_ptr<Pulse> pulse_;  // none when there is one rank
};

}  // namespace lockstep
