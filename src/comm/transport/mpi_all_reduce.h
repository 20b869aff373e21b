// A sum over MPI in which every rank adds up one share of the values.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/transport/peer_messages.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Each rank gets everybody's values of its share, adds them in the order of ranks, and gives the sums to all. As many
// bytes travel as in a ring allreduce, and every rank has the same bits. MPI's own MPI_Iallreduce is not good enough:
// Open MPI's, in place, sends all values along a tree, 2 log2(N) times, and any would round 16-bit numbers after every
// term; here these are added in float32 and rounded once. Nor is MPI_Ialltoallv, which does not say who is late.
//
// Owned and driven by the communication thread. The memory must be left alone until it is done.
class MpiAllReduce {
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
  MpiAllReduce(const Values& values, const Place& place, const std::string& what);

  // Lets it go on. The sums are given back in one order too: `may_gather` says whether all earlier ones are.
  void advance(bool may_gather);
  bool gathers() const { return state_ == State::gathering || state_ == State::done; }
  bool done() const { return state_ == State::done; }
  // The rank that alone keeps it from going on; -1: none, several.
  int straggler() { return (gathers() ? sums_ : terms_).only_missing_rank(); }

 private:
  enum class State { exchanging, added, gathering, done };
  void exchange();
  void add_up();
  // A block of this rank's share.
  void add_floats(size_t begin, size_t count) const;
  void add_halves(size_t begin, size_t count) const;
  void gather();

  std::byte* share(int rank) const;
  std::byte* term(int rank) const;
  int length(int rank) const { return lengths_[static_cast<size_t>(rank)]; }
  int after(int distance) const { return (place_.rank + distance) % place_.size; }

  Values values_;
  Place place_;
  State state_ = State::exchanging;
  std::vector<int> lengths_, offsets_;     // of all shares
  std::unique_ptr<std::byte[]> received_;  // the other ranks' values of this rank's share
  PeerMessages terms_, sums_;
};

}  // namespace lockstep
