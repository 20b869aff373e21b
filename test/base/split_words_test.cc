#include "lockstep/base/split_words.h"

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("a text is split at each separator, and an empty one has no words") {
  using Words = std::vector<std::string_view>;
  CHECK(split_words("", ' ').empty());
  CHECK(split_words("one", ' ') == Words{"one"});
  CHECK(split_words("one two", ' ') == Words{"one", "two"});
  CHECK(split_words("a|b c", '|') == Words{"a", "b c"});
  CHECK(split_words("a||b", '|') == Words{"a", "", "b"});
}
