#include "comm/transport/mpi_all_reduce.h"

#include <algorithm>
#include <array>
#include <span>

#include "lockstep/tensor/half.h"

namespace lockstep {
namespace {

constexpr int kTermsTag = 1, kSumsTag = 2;
constexpr size_t kBlock = 2048;  // elements that are added up at a time: they stay in the nearest cache

MPI_Datatype mpi_type(DType type) { return type == DType::f32 ? MPI_FLOAT : MPI_UINT16_T; }

}  // namespace

MpiAllReduce::MpiAllReduce(const Values& values, const Place& place, const std::string& what)
    : values_(values),
      place_(place),
      terms_({place.comm, kTermsTag, mpi_type(values.type)}, what),
      sums_({place.comm, kSumsTag, mpi_type(values.type)}, what) {
  const int share = (values.count + place.size - 1) / place.size;
  for (int r = 0, begin = 0; r < place.size; ++r) {
    offsets_.push_back(begin);
    lengths_.push_back(std::min(share, values.count - begin));
    begin += lengths_.back();
  }
  exchange();
}

void MpiAllReduce::advance(bool may_gather) {
  if (state_ == State::exchanging && terms_.complete()) {
    add_up();
    state_ = State::added;
  }
  if (state_ == State::added && may_gather) {
    gather();
    state_ = State::gathering;
  }
  if (state_ == State::gathering && sums_.complete()) state_ = State::done;
}

// Each rank turns first to those next to it, so that not all send to one at a time.
void MpiAllReduce::exchange() {
  const int mine = length(place_.rank);
  const auto others = static_cast<size_t>(place_.size - 1);
  received_ =
      std::make_unique_for_overwrite<std::byte[]>(others * static_cast<size_t>(mine) * dtype_bytes(values_.type));
  for (int d = 1; d < place_.size; ++d) {
    const int from = after(place_.size - d);
    terms_.receive(from, term(from), mine);
  }
  for (int d = 1; d < place_.size; ++d) terms_.send(after(d), share(after(d)), length(after(d)));
}

void MpiAllReduce::gather() {
  for (int d = 1; d < place_.size; ++d) {
    const int from = after(place_.size - d);
    sums_.receive(from, share(from), length(from));
  }
  for (int d = 1; d < place_.size; ++d) sums_.send(after(d), share(place_.rank), length(place_.rank));
}

// Where rank r's values of this rank's share are.
std::byte* MpiAllReduce::term(int rank) const {
  if (rank == place_.rank) return share(rank);
  const auto slot = static_cast<size_t>(rank < place_.rank ? rank : rank - 1);
  return received_.get() + slot * static_cast<size_t>(length(place_.rank)) * dtype_bytes(values_.type);
}

std::byte* MpiAllReduce::share(int rank) const {
  return values_.data + static_cast<size_t>(offsets_[static_cast<size_t>(rank)]) * dtype_bytes(values_.type);
}

void MpiAllReduce::add_up() {
  const auto mine = static_cast<size_t>(length(place_.rank));
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
  for (int r = 1; r < place_.size; ++r) {
    const float* theirs = block(r);
    for (size_t i = 0; i < count; ++i) total[i] += theirs[i];
  }
  std::copy_n(total.data(), count, block(place_.rank));
}

void MpiAllReduce::add_halves(size_t begin, size_t count) const {
  std::array<float, kBlock> total{};
  const std::span sums = std::span(total).first(count);
  const auto block = [&](int rank) { return std::span(reinterpret_cast<uint16_t*>(term(rank)) + begin, count); };
  for (int r = 0; r < place_.size; ++r) add_half(values_.type, block(r), sums);
  to_half(values_.type, sums, block(place_.rank));
}

}  // namespace lockstep
