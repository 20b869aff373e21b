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
constexpr size_t kBlock = 2048;  // elements that are added up at a time: they stay in the nearest cache

struct Range {
  size_t begin = 0, end = 0;  // elements
};

// A rank's share, in whole cache lines, so that no two ranks write to one.
Range share_of(int rank, int ranks, size_t count, size_t element_bytes) {
  const size_t line = kCacheLine / element_bytes;
  const size_t lines = (count + line - 1) / line;
  const size_t share = (lines + static_cast<size_t>(ranks) - 1) / static_cast<size_t>(ranks) * line;
  const size_t begin = std::min(count, share * static_cast<size_t>(rank));
  return {begin, std::min(count, begin + share)};
}

template <class T>
T* values_of(const ShmRange& part, int rank) {
  return reinterpret_cast<T*>(part.memory->of(rank) + part.offset);
}

template <class T>
void add_block(const ShmRange& part, Range block, std::array<T, kBlock>& total) {
  const size_t count = block.end - block.begin;
  std::copy_n(values_of<T>(part, 0) + block.begin, count, total.data());
  for (int r = 1; r < part.memory->ranks(); ++r) {
    const T* theirs = values_of<T>(part, r) + block.begin;
    for (size_t i = 0; i < count; ++i) total[i] += theirs[i];
  }
}

void add_half_block(const ShmRange& part, Range block, std::array<uint16_t, kBlock>& rounded) {
  const size_t count = block.end - block.begin;
  std::array<float, kBlock> total{};
  const std::span sums = std::span(total).first(count);
  for (int r = 0; r < part.memory->ranks(); ++r) {
    add_half(part.type, {values_of<uint16_t>(part, r) + block.begin, count}, sums);
  }
  to_half(part.type, sums, std::span(rounded).first(count));
}

template <class T, class AddBlock>
void add_share(const ShmRange& part, int rank, const AddBlock& add) {
  const Range share = share_of(rank, part.memory->ranks(), static_cast<size_t>(part.count), sizeof(T));
  std::array<T, kBlock> total;
  for (size_t begin = share.begin; begin < share.end; begin += kBlock) {
    const Range block{begin, std::min(share.end, begin + kBlock)};
    add(part, block, total);
    for (int r = 0; r < part.memory->ranks(); ++r) {
      std::copy_n(total.data(), block.end - block.begin, values_of<T>(part, r) + begin);
    }
  }
}

void add_share(const ShmRange& part, int rank) {
  switch (part.type) {
    case DType::f32:
      return add_share<float>(part, rank, add_block<float>);
    case DType::f64:
      return add_share<double>(part, rank, add_block<double>);
    case DType::bf16:
    case DType::f16:
      return add_share<uint16_t>(part, rank, add_half_block);
    default:
      require(false, "sums of {} are not made", dtype_name(part.type));
  }
}

}  // namespace

// In shared memory, each line written by one rank; the bell by all.
struct ShmAllReduce::Counters {
  alignas(kCacheLine) int64_t begun;  // sums that the rank has come to
  alignas(kCacheLine) int64_t added;  // those whose share it has added up
  alignas(kCacheLine) uint32_t bell;
};

ShmAllReduce::Result ShmAllReduce::make(ProcessGroup& group) {
  auto [memory, reason] = SharedMemory::make(group, sizeof(Counters));
  if (!memory) return {.sums = nullptr, .reason = std::move(reason)};
  return {.sums = std::unique_ptr<ShmAllReduce>(new ShmAllReduce(std::move(memory), group.rank())), .reason = {}};
}

ShmAllReduce::Allocation ShmAllReduce::allocate(ProcessGroup& group, size_t bytes) {
  auto [memory, reason] = SharedMemory::make(group, bytes);
  if (!memory) return {.bytes = {}, .reason = std::move(reason)};
  memory_.push_back(std::move(memory));
  return {.bytes = {memory_.back()->of(rank_), bytes}, .reason = {}};
}

std::optional<ShmRange> ShmAllReduce::find(std::span<const std::byte> values, DType type) const {
  if (values.empty()) return std::nullopt;
  for (const auto& memory : memory_) {
    const std::byte* const begin = memory->of(rank_);
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

// Zeroed memory holds counters that begin at zero.
ShmAllReduce::Counters& ShmAllReduce::counters(int rank) const {
  return *reinterpret_cast<Counters*>(control_->of(rank));
}

Doorbell ShmAllReduce::bell_of(int rank) const { return Doorbell(counters(rank).bell); }

bool ShmAllReduce::all_at_least(int64_t Counters::*counter, int64_t number) const {
  for (int r = 0; r < control_->ranks(); ++r) {
    if (std::atomic_ref(counters(r).*counter).load(std::memory_order_acquire) < number) return false;
  }
  return true;
}

void ShmAllReduce::tell(int64_t Counters::*counter, int64_t number) {
  std::atomic_ref(counters(rank_).*counter).store(number, std::memory_order_release);
  for (int r = 0; r < control_->ranks(); ++r) {
    if (r != rank_) bell_of(r).ring();
  }
}

int64_t ShmAllReduce::begin() {
  tell(&Counters::begun, ++begun_);
  return begun_;
}

bool ShmAllReduce::advance(int64_t number, const ShmRange& part) {
  if (added_ < number) {
    // One before it may have been waiting for a rank that has come since.
    if (added_ + 1 < number || !all_at_least(&Counters::begun, number)) return false;
    add_share(part, rank_);
    tell(&Counters::added, ++added_);
  }
  return all_at_least(&Counters::added, number);
}

}  // namespace lockstep
