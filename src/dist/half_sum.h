// A sum of 16-bit numbers over MPI that adds in float32.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "lockstep/dist/communicator.h"

namespace lockstep {

// MPI's own reductions would round after every term. Here each rank gets everybody's values of its share, adds them in
// float32 in the order of ranks, and gives the sums, rounded once, to all; so every rank has the same bits. As many
// bytes travel as in a ring allreduce.
//
// Owned and driven by the communication thread. The memory must be left alone until it is done.
class HalfSum {
 public:
  struct Place {
    MPI_Comm comm;
    int rank, size;
  };
  // Begins to exchange the values. Every rank must begin its sums in one order.
  HalfSum(HalfSpan values, const Place& exchange, std::string what);

  // Lets it go on. The sums of all ranks are given back on `gather`, again begun in one order: `may_gather` says
  // whether all earlier ones have.
  void advance(MPI_Comm gather, bool may_gather);
  bool gathers() const { return state_ == State::gathering || state_ == State::done; }
  bool done() const { return state_ == State::done; }

 private:
  enum class State { exchanging, added, gathering, done };
  bool complete();
  void add_up();

  HalfSpan values_;
  std::string what_;
  size_t rank_;
  State state_ = State::exchanging;
  std::vector<int> lengths_, offsets_;                    // of all shares
  std::vector<int> received_lengths_, received_offsets_;  // in received_
  std::vector<uint16_t> received_;                        // all ranks' values of this rank's share
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace lockstep
