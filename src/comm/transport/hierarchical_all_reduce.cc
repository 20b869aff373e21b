#include "comm/transport/hierarchical_all_reduce.h"

#include <algorithm>
#include <utility>

#include "lockstep/tensor/half.h"

namespace lockstep {
namespace {

std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

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
  return exchanged && local_->distribute(sum.number, sum.range) && local_->done(sum.number);
}

void HierarchicalAllReduce::start_exchanges(Sum& sum) const {
  sum.exchanging = true;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const std::span<float> values = floats(local_->lane(sum.range, hosts_.lanes().begin + static_cast<int>(i)));
    const auto count = static_cast<int64_t>(values.size());
    for (int64_t first = 0; first < count; first += sum.elements_per_call) {
      const int piece = static_cast<int>(std::min(sum.elements_per_call, count - first));
      sum.exchanges.emplace_back(
          MpiAllReduce::Values{reinterpret_cast<std::byte*>(values.data() + first), piece, DType::f32},
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
