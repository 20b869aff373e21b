#include "lockstep/io/crc64.h"

#include <array>
#include <bit>
#include <cstring>

#include "io/crc_tables.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

constexpr uint64_t kPolynomial = 0xC96C5795D7870F42ULL;  // ECMA-182, bits reversed
constexpr size_t kSlices = 16;

constexpr auto kTable = make_crc_tables<uint64_t, kSlices>(kPolynomial);

static_assert(std::endian::native == std::endian::little);

uint64_t load64(const std::byte* from) {
  uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Returns the register after `bytes`, which it processes 16 at a time.
uint64_t advance_by_tables(std::span<const std::byte> bytes, uint64_t crc) {
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= kSlices; at += kSlices, left -= kSlices) {
    const uint64_t low = crc ^ load64(at);
    const uint64_t high = load64(at + 8);
    uint64_t next = 0;
    for (size_t i = 0; i < 8; ++i) {
      next ^= kTable[15 - i][(low >> (8 * i)) & 0xFF] ^ kTable[7 - i][(high >> (8 * i)) & 0xFF];
    }
    crc = next;
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTable[0][(crc ^ static_cast<uint64_t>(*at)) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
// Returns x^n modulo the polynomial. Bit i stands for x^(63-i), as in the register.
constexpr uint64_t power(int n) {
  uint64_t value = uint64_t{1} << 63;
  for (; n > 0; --n) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
  return value;
}

// The factors that move 128 bits of the message forward by kBits; the first 64 bits need another factor of x^64. The
// carry-less product of two bit-reversed words is too large by a factor of x, hence the 1.
template <int kBits>
__m128i factors() {
  constexpr uint64_t kFirst = power(kBits + 63), kSecond = power(kBits - 1);
  return _mm_set_epi64x(static_cast<int64_t>(kSecond), static_cast<int64_t>(kFirst));
}

__attribute__((target("pclmul"))) __m128i fold_by_pclmul(__m128i sum, __m128i by, __m128i next) {
  const __m128i first = _mm_clmulepi64_si128(sum, by, 0x00), second = _mm_clmulepi64_si128(sum, by, 0x11);
  return _mm_xor_si128(next, _mm_xor_si128(first, second));
}

// Folds the message into 16 bytes with the same remainder, four independent sums at a time: Gopal et al., "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.
__attribute__((target("pclmul"))) uint64_t advance_by_pclmul(std::span<const std::byte> bytes, uint64_t crc) {
  constexpr size_t kSums = 4, kStride = kSums * sizeof(__m128i);
  if (bytes.size() < 2 * kStride) return advance_by_tables(bytes, crc);
  const auto load = [&](size_t at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data() + at)); };
  __m128i sums[kSums];
  for (size_t i = 0; i < kSums; ++i) sums[i] = load(i * sizeof(__m128i));
  sums[0] = _mm_xor_si128(sums[0], _mm_set_epi64x(0, static_cast<int64_t>(crc)));
  size_t done = kStride;
  for (const __m128i by = factors<8 * kStride>(); bytes.size() - done >= kStride; done += kStride) {
    for (size_t i = 0; i < kSums; ++i) sums[i] = fold_by_pclmul(sums[i], by, load(done + i * sizeof(__m128i)));
  }
  const __m128i by = factors<8 * sizeof(__m128i)>();
  for (size_t i = 1; i < kSums; ++i) sums[i] = fold_by_pclmul(sums[i - 1], by, sums[i]);
  std::array<std::byte, sizeof(__m128i)> rest;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest.data()), sums[kSums - 1]);
  return advance_by_tables(bytes.subspan(done), advance_by_tables(rest, 0));
}
#endif

}  // namespace

uint64_t crc64_portable(std::span<const std::byte> bytes, uint64_t crc) { return ~advance_by_tables(bytes, ~crc); }

uint64_t crc64(std::span<const std::byte> bytes, uint64_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("pclmul")) return ~advance_by_pclmul(bytes, ~crc);
#endif
  return crc64_portable(bytes, crc);
}

}  // namespace lockstep
