#include "lockstep/base/checked_size.h"

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include "test/catch.h"

using namespace lockstep;

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

std::optional<int64_t> product(std::initializer_list<int64_t> factors) {
  return checked_product(std::vector<int64_t>(factors));
}

}  // namespace

TEST_CASE("a checked product is the product where it fits and nothing where it does not") {
  CHECK(product({}) == 1);
  CHECK(product({2, 3, 299, 299}) == 536406);
  CHECK(product({kMost}) == kMost);
  CHECK(product({kMost, 2}) == std::nullopt);
  CHECK(product({2, 1, int64_t{1} << 56, 256}) == std::nullopt);  // 2^65, which wraps to 0
  CHECK(product({-1, -1}) == std::nullopt);
}

TEST_CASE("a checked product with a factor of 0 is 0, whatever the others would make") {
  CHECK(product({kMost, kMost, 0}) == 0);
  CHECK(product({0, -1}) == std::nullopt);
}

TEST_CASE("a declared length beyond what is left is refused with both sizes") {
  CHECK_NOTHROW(require_available({.what = "a.png: chunk tEXt", .declared = 7, .available = 7}));
  try {
    require_available({.what = "a.png: chunk tEXt", .declared = (1u << 30) - 1, .available = 12});
    FAIL("it was accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    CHECK(std::string(error.what()) == "a.png: chunk tEXt declares 1073741823 bytes, but 12 are left");
  }
}
