#include "io/fletcher32.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "lockstep/base/random.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

// Word by word, folding after each: the definition.
uint32_t by_words(std::span<const std::byte> bytes) {
  uint32_t first = 0, second = 0;
  auto fold = [](uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  for (size_t i = 0; i < bytes.size(); i += 2) {
    const auto low = i + 1 < bytes.size() ? std::to_integer<uint32_t>(bytes[i + 1]) : 0;
    first = fold(first + (std::to_integer<uint32_t>(bytes[i]) << 8 | low));
    second = fold(second + first);
  }
  return second << 16 | first;
}

std::vector<std::byte> noise(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(random_bits(7, i));
  return bytes;
}

}  // namespace

TEST_CASE("fletcher32 gives known values") {
  const std::string_view text = "abcdef";  // words 6162 6364 6566
  CHECK(hdf5_fletcher32(std::as_bytes(std::span(text))) == 0x50562A2D);
}

TEST_CASE("fletcher32 equals its definition for every length, long runs of ones and zeros") {
  for (size_t size = 0; size < 600; ++size) {
    INFO(size);
    const auto bytes = noise(size);
    CHECK(hdf5_fletcher32(bytes) == by_words(bytes));
  }
  for (const size_t size : {1u << 20, (1u << 20) + 1, 3000001u})
    CHECK(hdf5_fletcher32(noise(size)) == by_words(noise(size)));
  const std::vector<std::byte> ones(5 << 20, std::byte{0xff}), zeros(4099);
  CHECK(hdf5_fletcher32(ones) == by_words(ones));
  CHECK(hdf5_fletcher32(zeros) == 0);
}
