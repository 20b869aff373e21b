#include "comm/transport/hierarchical_all_reduce.h"

#include <algorithm>
#include <utility>

#include "lockstep/tensor/half.h"

namespace lockstep {
HierarchicalAllReduce::Result HierarchicalAllReduce::make(ProcessGroup& group, HostLayout hosts, CommHandle comm) {
  auto [local, reason] = ShmAllReduce::make(group, hosts);
  if (!local) return {.all_reduce = nullptr, .reason = std::move(reason)};
  return {.all_reduce = std::unique_ptr<HierarchicalAllReduce>(
              new HierarchicalAllReduce(std::move(local), std::move(hosts), std::move(comm))),
          .reason = {}};
}

HierarchicalAllReduce::HierarchicalAllReduce(std::unique_ptr<ShmAllReduce> local, HostLayout hosts, CommHandle comm)
    : local_(std::move(local)), hosts_(std::move(hosts)), comm_(std::move(comm)) {
  for (int lane = hosts_.lanes().begin; lane < hosts_.lanes().end; ++lane) lanes_.push_back(hosts_.lane_ranks(lane));
}

std::optional<ShmRange> HierarchicalAllReduce::find(std::span<const std::byte> values, DType type) const {
  if (hosts_.hosts() > 1 && type != DType::f32) return std::nullopt;
  return local_->find(values, type);
}

void HierarchicalAllReduce::start(Sum& sum) { sum.number = local_->start(); }

bool HierarchicalAllReduce::advance(Sum& sum, bool& may_gather) {
  if (hosts_.hosts() == 1) return local_->advance(sum.number, sum.range);
  if (!sum.exchanging) {
    if (!local_->add_up(sum.number, sum.range)) return false;
    start_exchanges(sum);
  }
  bool exchanged = true;
  for (MpiAllReduce& exchange : sum.exchanges) {
    exchange.advance(may_gather);
    may_gather = may_gather && exchange.gather_started();
    exchanged = exchanged && exchange.done();
  }
  if (!exchanged) return false;
  for (size_t i = 0; i < sum.halves.size(); ++i) from_half(sum.wire, sum.halves[i], lane(sum, i));
  sum.halves.clear();
  return local_->distribute(sum.number, sum.range) && local_->done(sum.number);
}

std::span<float> HierarchicalAllReduce::lane(const Sum& sum, size_t index) const {
  const std::span<std::byte> bytes = local_->lane(sum.range, hosts_.lanes().begin + static_cast<int>(index));
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

void HierarchicalAllReduce::start_exchanges(Sum& sum) const {
  sum.exchanging = true;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const std::span<float> values = lane(sum, i);
    std::byte* data = std::as_writable_bytes(values).data();
    if (sum.wire != DType::f32) {
      std::vector<uint16_t>& halves = sum.halves.emplace_back(values.size());
      to_half(sum.wire, values, halves);
      data = std::as_writable_bytes(std::span(halves)).data();
    }
    const auto count = static_cast<int64_t>(values.size());
    for (int64_t first = 0; first < count; first += sum.elements_per_call) {
      const int piece = static_cast<int>(std::min(sum.elements_per_call, count - first));
      sum.exchanges.emplace_back(
          MpiAllReduce::Values{data + static_cast<size_t>(first) * dtype_bytes(sum.wire), piece, sum.wire},
          MpiAllReduce::Group{comm_.get(), lanes_[i], hosts_.host()}, sum.what);
    }
  }
}

HierarchicalAllReduce::Stage HierarchicalAllReduce::stage(Sum& sum) const {
  const auto late = std::ranges::find_if(sum.exchanges, [](const MpiAllReduce& e) { return !e.done(); });
  if (late != sum.exchanges.end()) return {.between_hosts = true, .straggler = late->straggler()};
  return {.straggler = local_->straggler(sum.number)};
}

bool HierarchicalAllReduce::exchanging(const Sum& sum) {
  return std::ranges::any_of(sum.exchanges, [](const MpiAllReduce& exchange) { return !exchange.done(); });
}

}  // namespace lockstep
