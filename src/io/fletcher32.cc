#include "io/fletcher32.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

constexpr uint64_t kModulus = 65535;
constexpr size_t kBlockWords = 128;  // weighted sums of a block stay below 2^32

// The sums are folded rather than divided, so a positive multiple of the modulus is 65535, not 0.
uint32_t folded(uint64_t sum) {
  const uint64_t rest = sum % kModulus;
  return static_cast<uint32_t>(rest == 0 && sum > 0 ? kModulus : rest);
}

}  // namespace

uint32_t hdf5_fletcher32(std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t first = 0, second = 0;  // of words in native order; second = sum of all prefix sums
  size_t left = bytes.size() / 2;
  const std::byte* from = bytes.data();
  while (left > 0) {
    uint16_t words[kBlockWords] = {};
    const size_t count = std::min(left, kBlockWords);
    std::memcpy(words, from, count * sizeof(uint16_t));
    uint32_t sum = 0, weighted = 0;
    for (uint32_t i = 0; i < kBlockWords; ++i) {  // words past the end are 0
      sum += words[i];
      weighted += (static_cast<uint32_t>(count) - i) * words[i];
    }
    second += count * first + weighted;
    first += sum;
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
