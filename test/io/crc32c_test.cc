#include "lockstep/io/crc32c.h"

#include <string>

#include "lockstep/base/random.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("CRC-32C gives the values of RFC 3720, appendix B.4") {
  std::string rising(32, '\0');
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<char>(i);
  for (auto* const crc : {crc32c, crc32c_portable}) {
    CHECK(crc(bytes_of(std::string(32, '\0'))) == 0x8a9136aaU);
    CHECK(crc(bytes_of(std::string(32, '\xff'))) == 0x62a8ab43U);
    CHECK(crc(bytes_of(rising)) == 0x46dd794eU);
    CHECK(crc(bytes_of("123456789")) == 0xe3069283U);
    CHECK(crc({}) == 0U);
  }
}

TEST_CASE("the processor's CRC-32C equals the tables' for every length and alignment") {
  std::string text;
  RandomStream random(7);
  for (int i = 0; i < 200; ++i) text += static_cast<char>(random.bits());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t count = 0; count + begin <= text.size(); ++count) {
      const auto part = bytes_of(text).subspan(begin, count);
      REQUIRE(crc32c(part) == crc32c_portable(part));
    }
  }
}
