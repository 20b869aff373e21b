// A sum over MPI in which every rank adds up one share of the values.
#pragma once

#include <mpi.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/dist/communicator.h"

namespace lockstep {

// Each rank gets everybody's values of its share, adds them in the order of ranks, and gives the sums to all. As many
// bytes travel as in a ring allreduce, and every rank has the same bits. MPI's own MPI_Iallreduce is not good enough:
// Open MPI's, in place, sends all values along a tree, 2 log2(N) times, and any would round 16-bit numbers after every
// term; here these are added in float32 and rounded once.
//
// Owned and driven by the communication thread. The memory must be left alone until it is done.
class ShareSum {
 public:
  struct Values {
    std::byte* data = nullptr;
    int count = 0;            // elements
    DType type = DType::f32;  // or bf16, f16
  };
  struct Place {
    MPI_Comm comm;
    int rank, size;
  };
  // Begins to exchange the values. Every rank must begin its sums in one order.
  ShareSum(const Values& values, const Place& exchange, std::string what);

  // Lets it go on. The sums of all ranks are given back on `gather`, again begun in one order: `may_gather` says
  // whether all earlier ones have.
  void advance(MPI_Comm gather, bool may_gather);
  bool gathers() const { return state_ == State::gathering || state_ == State::done; }
  bool done() const { return state_ == State::done; }

 private:
  enum class State { exchanging, added, gathering, done };
  bool complete();
  void add_up();
  void add_halves(std::span<uint16_t> share) const;

  Values values_;
  std::string what_;
  size_t rank_;
  MPI_Datatype type_;
  State state_ = State::exchanging;
  std::vector<int> lengths_, offsets_;                    // of all shares
  std::vector<int> received_lengths_, received_offsets_;  // in received_
  std::unique_ptr<std::byte[]> received_;                 // all ranks' values of this rank's share
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace lockstep
