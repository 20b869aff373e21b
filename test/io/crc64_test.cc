#include "lockstep/io/crc64.h"

#include <string_view>
#include <vector>

#include "test/catch.h"

using namespace lockstep;

namespace {

uint64_t crc_of(std::string_view text, uint64_t crc = 0) { return crc64(std::as_bytes(std::span(text)), crc); }

// One bit at a time, straight from the definition.
uint64_t crc_by_bits(std::span<const std::byte> bytes) {
  uint64_t crc = ~uint64_t{0};
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint64_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xC96C5795D7870F42ULL : 0);
  }
  return ~crc;
}

}  // namespace

TEST_CASE("crc64 gives the published check values") {
  CHECK(crc_of("123456789") == 0x995DC9BBDF1939FAULL);
  CHECK(crc_of("") == 0);
}

TEST_CASE("crc64 by products and by slices equals the definition at every length and start") {
  std::vector<std::byte> bytes(331);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i * 37 + 11);
  for (size_t start = 0; start < 3; ++start) {
    for (size_t length = 0; start + length <= bytes.size(); ++length) {
      const auto part = std::span<const std::byte>(bytes).subspan(start, length);
      const uint64_t expected = crc_by_bits(part);
      REQUIRE(crc64(part) == expected);
      REQUIRE(crc64_portable(part) == expected);
    }
  }
}

TEST_CASE("crc64 continues over consecutive parts") {
  CHECK(crc_of("456789", crc_of("123")) == crc_of("123456789"));
  const std::string text(1000, 'x');
  CHECK(crc_of(text, crc_of(text)) == crc_of(text + text));
}
