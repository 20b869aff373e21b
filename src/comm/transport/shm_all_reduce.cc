#include "comm/transport/shm_all_reduce.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/tensor/half.h"

namespace lockstep {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kBlock = 2048;  // elements that are added at a time, few enough to stay in the L1 cache

struct Range {
  size_t begin = 0, end = 0;  // elements
};

// Returns the elements of some lanes. A lane consists of whole cache lines, so that no two ranks write to the same
// line.
Range share_of(const HostLayout::Lanes& lanes, const ShmRange& range) {
  const auto count = static_cast<size_t>(range.count);
  const size_t line = kCacheLine / dtype_bytes(range.type);
  const size_t lines = (count + line - 1) / line;
  const auto of_all = static_cast<size_t>(lanes.count);
  const size_t each = (lines + of_all - 1) / of_all * line;
  return {std::min(count, each * static_cast<size_t>(lanes.begin)),
          std::min(count, each * static_cast<size_t>(lanes.end))};
}

template <class T>
T* values_of(const ShmRange& range, int rank) {
  return reinterpret_cast<T*>(range.memory->block(rank) + range.offset);
}

template <class T>
void add_block(const ShmRange& range, Range block, std::array<T, kBlock>& total) {
  const size_t count = block.end - block.begin;
  std::copy_n(values_of<T>(range, 0) + block.begin, count, total.data());
  for (int r = 1; r < range.memory->ranks(); ++r) {
    const T* theirs = values_of<T>(range, r) + block.begin;
    for (size_t i = 0; i < count; ++i) total[i] += theirs[i];
  }
}

void add_half_block(const ShmRange& range, Range block, std::array<uint16_t, kBlock>& rounded) {
  const size_t count = block.end - block.begin;
  std::array<float, kBlock> total{};
  const std::span sums = std::span(total).first(count);
  for (int r = 0; r < range.memory->ranks(); ++r) {
    add_half(range.type, {values_of<uint16_t>(range, r) + block.begin, count}, sums);
  }
  to_half(range.type, sums, std::span(rounded).first(count));
}

// The ranks that get the sums, by index among the host's ranks.
struct Receivers {
  int begin = 0, end = 0;
};

template <class T, class AddBlock>
void add_share(const ShmRange& range, Range share, Receivers receivers, const AddBlock& add) {
  alignas(kCacheLine) std::array<T, kBlock> total;
  for (size_t begin = share.begin; begin < share.end; begin += kBlock) {
    const Range block{begin, std::min(share.end, begin + kBlock)};
    add(range, block, total);
    for (int r = receivers.begin; r < receivers.end; ++r) {
      std::copy_n(total.data(), block.end - block.begin, values_of<T>(range, r) + begin);
    }
  }
}

void add_share(const ShmRange& range, Range share, Receivers receivers) {
  switch (range.type) {
    case DType::f32:
      return add_share<float>(range, share, receivers, add_block<float>);
    case DType::f64:
      return add_share<double>(range, share, receivers, add_block<double>);
    case DType::bf16:
    case DType::f16:
      return add_share<uint16_t>(range, share, receivers, add_half_block);
    default:
      require(false, "no shared-memory all-reduce of {}", dtype_name(range.type));
  }
}

}  // namespace

// One rank's counters in shared memory. Each is in its own cache line. Only that rank writes the first two; all ranks
// ring the bell.
struct ShmAllReduce::Counters {
  alignas(kCacheLine) int64_t started;  // operations that the rank has started
  alignas(kCacheLine) int64_t reduced;  // operations whose share it has added up
  alignas(kCacheLine) uint32_t bell;
};

ShmAllReduce::Result ShmAllReduce::make(ProcessGroup& group, const HostLayout& hosts) {
  auto [memory, reason] = SharedMemory::make(group, hosts.local_ranks(), sizeof(Counters));
  if (!memory) return {.all_reduce = nullptr, .reason = std::move(reason)};
  return {.all_reduce = std::unique_ptr<ShmAllReduce>(new ShmAllReduce(std::move(memory), hosts)), .reason = {}};
}

ShmAllReduce::Allocation ShmAllReduce::allocate(ProcessGroup& group, size_t bytes) {
  auto [memory, reason] = SharedMemory::make(group, hosts_.local_ranks(), bytes);
  if (!memory) return {.bytes = {}, .reason = std::move(reason)};
  memory_.push_back(std::move(memory));
  return {.bytes = {memory_.back()->block(hosts_.local_index()), bytes}, .reason = {}};
}

std::optional<ShmRange> ShmAllReduce::find(std::span<const std::byte> values, DType type) const {
  if (values.empty()) return std::nullopt;
  for (const auto& memory : memory_) {
    const std::byte* const begin = memory->block(hosts_.local_index());
    const std::byte* const end = begin + memory->bytes();
    const std::less_equal<const std::byte*> not_after;
    if (!not_after(begin, values.data()) || !not_after(values.data() + values.size(), end)) continue;
    return ShmRange{.memory = memory.get(),
                    .offset = static_cast<size_t>(values.data() - begin),
                    .count = static_cast<int64_t>(values.size() / dtype_bytes(type)),
                    .type = type};
  }
  return std::nullopt;
}

// The memory is zeroed, so all counters start at zero.
ShmAllReduce::Counters& ShmAllReduce::counters(int local) const {
  return *reinterpret_cast<Counters*>(control_->block(local));
}

Doorbell ShmAllReduce::bell_of(int local) const { return Doorbell(counters(local).bell); }

bool ShmAllReduce::all_at_least(int64_t Counters::*counter, int64_t number) const {
  for (int r = 0; r < control_->ranks(); ++r) {
    if (std::atomic_ref(counters(r).*counter).load(std::memory_order_acquire) < number) return false;
  }
  return true;
}

void ShmAllReduce::publish(int64_t Counters::*counter, int64_t number) {
  std::atomic_ref(counters(hosts_.local_index()).*counter).store(number, std::memory_order_release);
  for (int r = 0; r < control_->ranks(); ++r) {
    if (r != hosts_.local_index()) bell_of(r).ring();
  }
}

int64_t ShmAllReduce::start() {
  publish(&Counters::started, ++started_);
  return started_;
}

bool ShmAllReduce::advance(int64_t number, const ShmRange& range) {
  if (reduced_ < number) {
    if (!may_add_up(number)) return false;
    add_share(range, share_of(hosts_.lanes(), range), {0, control_->ranks()});
    added_up_ = number;
    publish(&Counters::reduced, ++reduced_);
  }
  return done(number);
}

// An earlier operation may have been waiting for a rank that has started since; it must be added up first.
bool ShmAllReduce::may_add_up(int64_t number) const {
  return added_up_ + 1 == number && all_at_least(&Counters::started, number);
}

bool ShmAllReduce::add_up(int64_t number, const ShmRange& range) {
  if (added_up_ >= number) return true;
  if (!may_add_up(number)) return false;
  const int mine = hosts_.local_index();
  if (control_->ranks() > 1) add_share(range, share_of(hosts_.lanes(), range), {mine, mine + 1});
  added_up_ = number;
  return true;
}

std::span<std::byte> ShmAllReduce::lane(const ShmRange& range, int lane) const {
  const Range share = share_of({lane, lane + 1, hosts_.lanes().count}, range);
  const size_t element = dtype_bytes(range.type);
  std::byte* const values = values_of<std::byte>(range, hosts_.local_index());
  return {values + share.begin * element, (share.end - share.begin) * element};
}

bool ShmAllReduce::distribute(int64_t number, const ShmRange& range) {
  if (reduced_ >= number) return true;
  if (reduced_ + 1 < number) return false;
  const Range share = share_of(hosts_.lanes(), range);
  const size_t begin = share.begin * dtype_bytes(range.type), end = share.end * dtype_bytes(range.type);
  const std::byte* const sums = values_of<std::byte>(range, hosts_.local_index());
  for (int r = 0; r < control_->ranks(); ++r) {
    if (r != hosts_.local_index()) std::copy(sums + begin, sums + end, values_of<std::byte>(range, r) + begin);
  }
  publish(&Counters::reduced, ++reduced_);
  return true;
}

bool ShmAllReduce::done(int64_t number) const { return all_at_least(&Counters::reduced, number); }

int ShmAllReduce::straggler(int64_t number) const {
  const auto counter = all_at_least(&Counters::started, number) ? &Counters::reduced : &Counters::started;
  int missing = -1;
  for (int r = 0; r < control_->ranks(); ++r) {
    if (std::atomic_ref(counters(r).*counter).load(std::memory_order_acquire) >= number) continue;
    if (missing >= 0) return -1;
    missing = hosts_.local_ranks()[static_cast<size_t>(r)];
  }
  return missing;
}

}  // namespace lockstep
