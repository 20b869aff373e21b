#include "dist/share_sum.h"

#include <algorithm>
#include <utility>

#include "dist/mpi_support.h"
#include "lockstep/tensor/half.h"

namespace lockstep {

ShareSum::ShareSum(const Values& values, const Place& exchange, std::string what)
    : values_(values),
      what_(std::move(what)),
      rank_(static_cast<size_t>(exchange.rank)),
      type_(values.type == DType::f32 ? MPI_FLOAT : MPI_UINT16_T) {
  const int share = (values.count + exchange.size - 1) / exchange.size;
  for (int r = 0, begin = 0; r < exchange.size; ++r) {
    offsets_.push_back(begin);
    lengths_.push_back(std::min(share, values.count - begin));
    begin += lengths_.back();
  }
  const int mine = lengths_[rank_];
  for (int r = 0; r < exchange.size; ++r) {
    received_offsets_.push_back(r * mine);
    received_lengths_.push_back(mine);
  }
  const size_t bytes = static_cast<size_t>(exchange.size) * static_cast<size_t>(mine) * dtype_bytes(values.type);
  received_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  check_mpi(MPI_Ialltoallv(values.data, lengths_.data(), offsets_.data(), type_, received_.get(),
                           received_lengths_.data(), received_offsets_.data(), type_, exchange.comm, &request_),
            what_);
}

void ShareSum::advance(MPI_Comm gather, bool may_gather) {
  if (state_ == State::exchanging && complete()) {
    add_up();
    state_ = State::added;
  }
  if (state_ == State::added && may_gather) {
    check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, type_, values_.data, lengths_.data(), offsets_.data(), type_, gather,
                              &request_),
              what_);
    state_ = State::gathering;
  }
  if (state_ == State::gathering && complete()) state_ = State::done;
}

bool ShareSum::complete() {
  int done = 0;
  check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), what_);
  return done != 0;
}

void ShareSum::add_up() {
  const auto mine = static_cast<size_t>(lengths_[rank_]);
  const auto offset = static_cast<size_t>(offsets_[rank_]);
  if (values_.type == DType::f32) {
    float* const share = reinterpret_cast<float*>(values_.data) + offset;
    const float* theirs = reinterpret_cast<const float*>(received_.get());
    std::copy_n(theirs, mine, share);
    for (size_t r = 1; r < lengths_.size(); ++r) {
      theirs += mine;
      for (size_t i = 0; i < mine; ++i) share[i] += theirs[i];
    }
  } else {
    add_halves({reinterpret_cast<uint16_t*>(values_.data) + offset, mine});
  }
  received_.reset();
}

void ShareSum::add_halves(std::span<uint16_t> share) const {
  std::vector<float> sums(share.size());
  const auto* theirs = reinterpret_cast<const uint16_t*>(received_.get());
  for (size_t r = 0; r < lengths_.size(); ++r) {
    add_half(values_.type, {theirs + r * share.size(), share.size()}, sums);
  }
  to_half(values_.type, sums, share);
}

}  // namespace lockstep
