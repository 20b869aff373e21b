#include "comm/transport/mpi_all_reduce.h"

#include <algorithm>
#include <array>

#include "lockstep/tensor/half.h"

namespace lockstep {
namespace {

constexpr int kScatterTag = 1, kGatherTag = 2;
// The most bytes that a rank sends if all values go to all peers at once. docs/benchmarks/reduction.md has the times.
constexpr size_t kOneRoundBytes = 16384;
constexpr size_t kBlock = 2048;  // elements that are added at a time, few enough to stay in the L1 cache

MPI_Datatype mpi_type(DType type) { return type == DType::f32 ? MPI_FLOAT : MPI_UINT16_T; }

}  // namespace

MpiAllReduce::MpiAllReduce(const Values& values, const Group& group, const std::string& what)
    : values_(values),
      group_(group),
      one_round_(static_cast<size_t>(size() - 1) * static_cast<size_t>(values.count) * dtype_bytes(values.type) <=
                 kOneRoundBytes),
      scatter_messages_({group.comm, kScatterTag, mpi_type(values.type)}, what),
      gather_messages_({group.comm, kGatherTag, mpi_type(values.type)}, what) {
  // In one round, every rank's share is all values.
  const int share = one_round_ ? values.count : (values.count + size() - 1) / size();
  for (int r = 0, begin = 0; r < size(); ++r) {
    offsets_.push_back(begin);
    lengths_.push_back(std::min(share, values.count - begin));
    if (!one_round_) begin += lengths_.back();
  }
  start_scatter();
}

void MpiAllReduce::advance(bool may_gather) {
  if (state_ == State::scattering && scatter_messages_.complete()) {
    add_up();
    state_ = one_round_ ? State::done : State::reduced;
  }
  if (state_ == State::reduced && may_gather) {
    start_gather();
    state_ = State::gathering;
  }
  if (state_ == State::gathering && gather_messages_.complete()) state_ = State::done;
}

// Each rank starts with its nearest neighbours, so that the ranks do not all send to the same rank at the same time.
void MpiAllReduce::start_scatter() {
  const int mine = length(group_.rank);
  const auto others = static_cast<size_t>(size() - 1);
  received_ =
      std::make_unique_for_overwrite<std::byte[]>(others * static_cast<size_t>(mine) * dtype_bytes(values_.type));
  for (int d = 1; d < size(); ++d) {
    const int from = rank_at(size() - d);
    scatter_messages_.receive(peer(from), term(from), mine);
  }
  for (int d = 1; d < size(); ++d) scatter_messages_.send(peer(rank_at(d)), share(rank_at(d)), length(rank_at(d)));
}

void MpiAllReduce::start_gather() {
  for (int d = 1; d < size(); ++d) {
    const int from = rank_at(size() - d);
    gather_messages_.receive(peer(from), share(from), length(from));
  }
  for (int d = 1; d < size(); ++d) gather_messages_.send(peer(rank_at(d)), share(group_.rank), length(group_.rank));
}

// Returns the values of `rank` for this rank's share.
std::byte* MpiAllReduce::term(int rank) const {
  if (rank == group_.rank) return share(rank);
  const auto slot = static_cast<size_t>(rank < group_.rank ? rank : rank - 1);
  return received_.get() + slot * static_cast<size_t>(length(group_.rank)) * dtype_bytes(values_.type);
}

std::byte* MpiAllReduce::share(int rank) const {
  return values_.data + static_cast<size_t>(offsets_[rank]) * dtype_bytes(values_.type);
}

void MpiAllReduce::add_up() {
  const auto mine = static_cast<size_t>(length(group_.rank));
  for (size_t begin = 0; begin < mine; begin += kBlock) {
    const size_t count = std::min(kBlock, mine - begin);
    values_.type == DType::f32 ? add_floats(begin, count) : add_halves(begin, count);
  }
  received_.reset();
}

void MpiAllReduce::add_floats(size_t begin, size_t count) const {
  std::array<float, kBlock> total;
  const auto block = [&](int rank) { return reinterpret_cast<float*>(term(rank)) + begin; };
  std::copy_n(block(0), count, total.data());
  for (int r = 1; r < size(); ++r) {
    const float* theirs = block(r);
    for (size_t i = 0; i < count; ++i) total[i] += theirs[i];
  }
  std::copy_n(total.data(), count, block(group_.rank));
}

void MpiAllReduce::add_halves(size_t begin, size_t count) const {
  std::array<float, kBlock> total{};
  const std::span sums = std::span(total).first(count);
  const auto block = [&](int rank) { return std::span(reinterpret_cast<uint16_t*>(term(rank)) + begin, count); };
  for (int r = 0; r < size(); ++r) add_half(values_.type, block(r), sums);
  to_half(values_.type, sums, block(group_.rank));
}

}  // namespace lockstep
