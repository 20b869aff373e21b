#include "lockstep/io/crc64.h"

#include <array>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

constexpr uint64_t kPolynomial = 0xC96C5795D7870F42ULL;  // ECMA-182, bits reversed
constexpr size_t kSlices = 16;

using Table = std::array<std::array<uint64_t, 256>, kSlices>;

// table[k][b]: what byte b contributes after k further zero bytes.
constexpr Table make_table() {
  Table table{};
  for (size_t b = 0; b < 256; ++b) {
    uint64_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[0][b] = crc;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t b = 0; b < 256; ++b) table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xFF];
  }
  return table;
}

constexpr Table kTable = make_table();

uint64_t load_little_endian(const std::byte* from) {
  uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

}  // namespace

uint64_t crc64(std::span<const std::byte> bytes, uint64_t crc) {
  crc = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= kSlices; at += kSlices, left -= kSlices) {
    const uint64_t low = crc ^ load_little_endian(at);
    const uint64_t high = load_little_endian(at + 8);
    uint64_t next = 0;
    for (size_t i = 0; i < 8; ++i) {
      next ^= kTable[15 - i][(low >> (8 * i)) & 0xFF] ^ kTable[7 - i][(high >> (8 * i)) & 0xFF];
    }
    crc = next;
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTable[0][(crc ^ static_cast<uint64_t>(*at)) & 0xFF];
  return ~crc;
}

}  // namespace lockstep
