// A PNG file. Decoded as it is, and with right checksums.
#include <zlib.h>

#include <cstring>
#include <vector>

#include "test/fuzz/pictures.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kNumberBytes = 4;  // of a chunk's length, type and checksum

uint32_t big_endian(const std::byte* at) {
  uint32_t number = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) number = number << 8 | std::to_integer<uint32_t>(at[i]);
  return number;
}

// The file with the checksum that each of its chunks ought to have.
std::vector<std::byte> with_checksums(Bytes input) {
  std::vector<std::byte> file(input.begin(), input.end());
  size_t at = kSignatureBytes;
  while (at + 3 * kNumberBytes <= file.size()) {
    const size_t length = big_endian(file.data() + at);
    if (length > file.size() - at - 3 * kNumberBytes) break;
    const std::byte* type = file.data() + at + kNumberBytes;
    const auto bytes = static_cast<uInt>(kNumberBytes + length);
    const auto crc = static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(type), bytes));
    at += 2 * kNumberBytes + length;
    for (size_t i = 0; i < kNumberBytes; ++i) file[at + i] = static_cast<std::byte>(crc >> (24 - 8 * i));
    at += kNumberBytes;
  }
  return file;
}

}  // namespace

void png(Bytes input) {
  if (input.size() < kSignatureBytes || input[0] != std::byte{0x89}) return;
  decode_both_ways(input);
  decode_both_ways(with_checksums(input));
}

}  // namespace lockstep::fuzz
