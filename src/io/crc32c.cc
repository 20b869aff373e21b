#include "lockstep/io/crc32c.h"

#include <bit>
#include <cstring>

#include "io/crc_tables.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr auto kTables = make_crc_tables<uint32_t, 8>(0x82f63b78U);  // of 0x1edc6f41

uint64_t load64(const std::byte* p) {
  uint64_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// The format and x86-64 are little-endian.
template <class T>
void append_number(T value, std::string& file) {
  file.append(reinterpret_cast<const char*>(&value), sizeof value);
}

uint32_t masked_checksum(std::string_view data) { return mask_crc32c(crc32c(std::as_bytes(std::span(data)))); }

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(std::span<const std::byte> data) {
  uint64_t crc = 0xffffffffU;
  const std::byte* p = data.data();
  size_t left = data.size();
  for (; left >= 8; left -= 8, p += 8) crc = _mm_crc32_u64(crc, load64(p));
  auto narrow = static_cast<uint32_t>(crc);
  for (; left > 0; --left, ++p) narrow = _mm_crc32_u8(narrow, std::to_integer<uint8_t>(*p));
  return ~narrow;
}
#endif

}  // namespace

uint32_t crc32c_portable(std::span<const std::byte> data) {
  uint32_t crc = 0xffffffffU;
  const std::byte* p = data.data();
  size_t left = data.size();
  for (; left >= 8; left -= 8, p += 8) {
    const uint64_t word = load64(p) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left > 0; --left, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<uint32_t>(*p)) & 0xff];
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> data) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_sse42(data);
#endif
  return crc32c_portable(data);
}

void append_tfrecord(std::string_view data, std::string& file) {
  const size_t begin = file.size();
  append_number(uint64_t{data.size()}, file);
  append_number(masked_checksum(std::string_view(file).substr(begin)), file);
  file += data;
  append_number(masked_checksum(data), file);
}

}  // namespace lockstep
