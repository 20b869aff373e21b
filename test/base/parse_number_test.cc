#include "lockstep/base/parse_number.h"

#include <cstdint>
#include <limits>

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("a number is the whole text") {
  CHECK(parse_number<int>("500") == 500);
  CHECK(parse_number<int64_t>("-1") == -1);
  CHECK(parse_number<double>("1e-3") == 1e-3);
  for (const char* text : {"", " 5", "5 ", "+5", "500m", "1e3", "0x10", "5,4", "five"}) {
    INFO("text '" << text << "'");
    CHECK(parse_number<int>(text) == std::nullopt);
  }
}

TEST_CASE("a number that does not fit its type, or is not finite, is none") {
  CHECK(parse_number<int>("2147483647") == std::numeric_limits<int>::max());
  CHECK(parse_number<int>("2147483648") == std::nullopt);
  CHECK(parse_number<unsigned>("-1") == std::nullopt);
  CHECK(parse_number<double>("1e999") == std::nullopt);
  CHECK(parse_number<double>("inf") == std::nullopt);
  CHECK(parse_number<double>("nan") == std::nullopt);
}
