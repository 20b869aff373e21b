#include "io/fletcher32.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

constexpr uint64_t kModulus = 65535;
// Word i is summed in lane i % kLanes. After kRows words, the sum of prefix sums in a lane is still below 2^32.
constexpr size_t kLanes = 8, kRows = 256;

// The sums are folded, not divided, so a positive multiple of the modulus becomes 65535 and not 0.
uint32_t folded(uint64_t sum) {
  const uint64_t rest = sum % kModulus;
  return static_cast<uint32_t>(rest == 0 && sum > 0 ? kModulus : rest);
}

struct Sums {
  uint64_t first = 0;   // of the words
  uint64_t second = 0;  // of the prefix sums
};

Sums sum_words(const std::byte* from, size_t count) {
  Sums sums;
  for (size_t i = 0; i < count; ++i) {
    uint16_t word = 0;
    std::memcpy(&word, from + 2 * i, sizeof word);
    sums.first += word;
    sums.second += sums.first;
  }
  return sums;
}

// Adds two words at a time in 128-bit vectors, which every x86-64 processor has.
Sums sum_lanes(const std::byte* from, size_t rows) {
  using Pairs [[gnu::vector_size(kLanes * sizeof(uint16_t))]] = uint32_t;
  Pairs first_even{}, first_odd{}, second_even{}, second_odd{};
  for (size_t row = 0; row < rows; ++row, from += sizeof(Pairs)) {
    Pairs words;
    std::memcpy(&words, from, sizeof words);
    first_even += words & 0xFFFF;
    first_odd += words >> 16;
    second_even += first_even;
    second_odd += first_odd;
  }
  // Lane l has counted each word kLanes times per row from its own row on, which is l times too often.
  Sums sums;
  const auto add = [&](size_t lane, uint64_t first, uint64_t second) {
    sums.first += first;
    sums.second += kLanes * second - lane * first;
  };
  for (size_t pair = 0; pair < kLanes / 2; ++pair) {
    add(2 * pair, first_even[pair], second_even[pair]);
    add(2 * pair + 1, first_odd[pair], second_odd[pair]);
  }
  return sums;
}

}  // namespace

uint32_t hdf5_fletcher32(std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t first = 0, second = 0;  // of words in native order; second = sum of all prefix sums
  const std::byte* from = bytes.data();
  for (size_t left = bytes.size() / 2; left > 0;) {
    const size_t rows = std::min(left / kLanes, kRows);
    const size_t count = rows > 0 ? rows * kLanes : left;
    const Sums sums = rows > 0 ? sum_lanes(from, rows) : sum_words(from, count);
    second += count * first + sums.second;
    first += sums.first;
    if (first >= (uint64_t{1} << 48) || second >= (uint64_t{1} << 62)) {  // keeps positive sums positive
      first = folded(first);
      second = folded(second);
    }
    from += count * 2;
    left -= count;
  }
  // Swapping the bytes of a word multiplies it by 256 modulo 65535.
  uint64_t low = folded(first) * uint64_t{256}, high = folded(second) * uint64_t{256};
  if (bytes.size() % 2 == 1) {
    low += std::to_integer<uint64_t>(bytes.back()) << 8;
    high += low;
  }
  return folded(high) << 16 | folded(low);
}

}  // namespace lockstep
