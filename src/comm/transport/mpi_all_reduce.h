// An all-reduce (sum) over MPI as a reduce-scatter and an all-gather: every rank adds up one share of the values.
#pragma once

#include <mpi.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/transport/peer_messages.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Each rank receives all other ranks' values of its share, adds them in rank order, and sends the sums to all. The
// number of bytes is that of a ring all-reduce, and every rank gets the same bits. For few values, each rank sends all
// of them to all others and adds up everything, which takes one round instead of two. Two MPI functions were rejected:
// Open MPI's in-place MPI_Iallreduce sends all values 2 log2(N) times along a tree, and every implementation rounds
// 16-bit floats after each term, while this class adds them in float32 and rounds once. MPI_Ialltoallv does not show
// which rank is late.
//
// Owned and driven by the communication thread. The memory must not be accessed until done() is true.
class MpiAllReduce {
 public:
  struct Values {
    std::byte* data = nullptr;
    int count = 0;            // elements
    DType type = DType::f32;  // or bf16, f16
  };
  // The ranks that sum, by their rank in `comm`, in the order in which their terms are added. They must outlive the
  // all-reduce.
  struct Group {
    MPI_Comm comm;
    std::span<const int> ranks;
    int rank;  // this rank's index in `ranks`
  };
  // Starts the reduce-scatter. Every rank must start its all-reduces in the same order. `what` names it in messages.
  MpiAllReduce(const Values& values, const Group& group, const std::string& what);

  // Makes progress without blocking. All-gathers must also start in the same order on every rank, so `may_gather` must
  // be false until those of all earlier operations have started.
  void advance(bool may_gather);
  bool gather_started() const { return state_ == State::gathering || state_ == State::done; }
  bool done() const { return state_ == State::done; }
  // Returns the only rank (of `comm`) whose messages are missing, or -1 if none or several are.
  int straggler() { return (gather_started() ? gather_messages_ : scatter_messages_).only_missing_rank(); }

 private:
  enum class State { scattering, reduced, gathering, done };
  void start_scatter();
  void start_gather();
  void add_up();
  // These add up a block of this rank's share.
  void add_floats(size_t begin, size_t count) const;
  void add_halves(size_t begin, size_t count) const;

  std::byte* share(int rank) const;
  std::byte* term(int rank) const;
  int length(int rank) const { return lengths_[rank]; }
  int size() const { return static_cast<int>(group_.ranks.size()); }
  int rank_at(int distance) const { return (group_.rank + distance) % size(); }
  int peer(int rank) const { return group_.ranks[static_cast<size_t>(rank)]; }

  Values values_;
  Group group_;
  bool one_round_;  // every rank sends all of its values to all others and adds up everything
  State state_ = State::scattering;
  std::vector<int> lengths_, offsets_;     // of each rank's share, in elements
  std::unique_ptr<std::byte[]> received_;  // the other ranks' values of this rank's share
  PeerMessages scatter_messages_, gather_messages_;
};

}  // namespace lockstep
