#include "lockstep/comm/group/parameter_audit.h"

#include <set>

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("the hash sees every bit, every length and the order of words") {
  std::vector<std::byte> bytes(100, std::byte{0x5a});
  std::set<uint64_t> seen = {hash_bytes(bytes)};
  for (std::byte& each : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      each ^= static_cast<std::byte>(1 << bit);
      seen.insert(hash_bytes(bytes));
      each ^= static_cast<std::byte>(1 << bit);
    }
  }
  CHECK(seen.size() == 801);
  const std::vector<std::byte> zeros(100);
  seen.clear();
  for (size_t length = 0; length <= zeros.size(); ++length) seen.insert(hash_bytes(std::span(zeros).first(length)));
  CHECK(seen.size() == 101);
  std::vector<uint64_t> words = {1, 2, 3, 4, 5, 6, 7, 8};
  const uint64_t before = hash_bytes(std::as_bytes(std::span(words)));
  std::swap(words[0], words[4]);
  CHECK(hash_bytes(std::as_bytes(std::span(words))) != before);
}

TEST_CASE("the hash does not depend on where the bytes lie") {
  std::vector<std::byte> bytes(200);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  std::vector<std::byte> shifted(201);
  std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
  CHECK(hash_bytes(bytes) == hash_bytes(std::span(shifted).subspan(1)));
}

TEST_CASE("the first range that differs is found with the ranks in the minority") {
  CHECK_FALSE(first_difference(std::vector<int64_t>{1, 2, 1, 2, 1, 2}, 3));
  const auto one = first_difference(std::vector<int64_t>{1, 2, 1, 9, 1, 2}, 3);
  REQUIRE(one);
  CHECK(one->range == 1);
  CHECK(one->ranks == std::vector<int>{1});
  const auto root = first_difference(std::vector<int64_t>{7, 2, 1, 9, 1, 2}, 3);
  REQUIRE(root);
  CHECK(root->range == 0);
  CHECK(root->ranks == std::vector<int>{0});
  const auto tie = first_difference(std::vector<int64_t>{1, 2}, 2);
  REQUIRE(tie);
  CHECK(tie->ranks == std::vector<int>{1});
}
