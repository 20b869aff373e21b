#include "dist/half_sum.h"

#include <algorithm>
#include <utility>

#include "dist/mpi_support.h"
#include "lockstep/tensor/half.h"

namespace lockstep {

HalfSum::HalfSum(HalfSpan values, const Place& exchange, std::string what)
    : values_(values), what_(std::move(what)), rank_(static_cast<size_t>(exchange.rank)) {
  const int count = static_cast<int>(values.values.size());
  const int share = (count + exchange.size - 1) / exchange.size;
  for (int r = 0, begin = 0; r < exchange.size; ++r) {
    offsets_.push_back(begin);
    lengths_.push_back(std::min(share, count - begin));
    begin += lengths_.back();
  }
  const int mine = lengths_[rank_];
  for (int r = 0; r < exchange.size; ++r) {
    received_offsets_.push_back(r * mine);
    received_lengths_.push_back(mine);
  }
  received_.resize(static_cast<size_t>(exchange.size) * static_cast<size_t>(mine));
  check_mpi(MPI_Ialltoallv(values.values.data(), lengths_.data(), offsets_.data(), MPI_UINT16_T, received_.data(),
                           received_lengths_.data(), received_offsets_.data(), MPI_UINT16_T, exchange.comm, &request_),
            what_);
}

void HalfSum::advance(MPI_Comm gather, bool may_gather) {
  if (state_ == State::exchanging && complete()) {
    add_up();
    state_ = State::added;
  }
  if (state_ == State::added && may_gather) {
    check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_UINT16_T, values_.values.data(), lengths_.data(), offsets_.data(),
                              MPI_UINT16_T, gather, &request_),
              what_);
    state_ = State::gathering;
  }
  if (state_ == State::gathering && complete()) state_ = State::done;
}

bool HalfSum::complete() {
  int done = 0;
  check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), what_);
  return done != 0;
}

void HalfSum::add_up() {
  const auto mine = static_cast<size_t>(lengths_[rank_]);
  std::vector<float> sums(mine);
  const std::span<const uint16_t> all = received_;
  for (size_t r = 0; r < lengths_.size(); ++r) add_half(values_.type, all.subspan(r * mine, mine), sums);
  to_half(values_.type, sums, values_.values.subspan(static_cast<size_t>(offsets_[rank_]), mine));
  received_ = {};
}

}  // namespace lockstep
