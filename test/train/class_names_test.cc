#include "lockstep/train/class_names.h"

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("names that are UTF-8 stay as they are, and other bytes, control characters and backslashes are escaped") {
  for (const char* name :
       {"", "cat", "A b", "\xc3\xbc \xe7\x8c\xab", "\xf0\x9f\x90\x88", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    CHECK(printable_name(name) == name);
  }
  CHECK(printable_name("a\\b") == "a\\x5cb");
  CHECK(printable_name("two\nlines\x7f") == "two\\x0alines\\x7f");
  CHECK(printable_name("\xff\xfe") == "\\xff\\xfe");
  CHECK(printable_name("latin\xfc") == "latin\\xfc");
  CHECK(printable_name("cut\xe7\x8c") == "cut\\xe7\\x8c");
  CHECK(printable_name("\xc0\xaf") == "\\xc0\\xaf");                             // overlong
  CHECK(printable_name("\xe0\x9f\xbf") == "\\xe0\\x9f\\xbf");                    // overlong
  CHECK(printable_name("\xed\xa0\x80") == "\\xed\\xa0\\x80");                    // a surrogate
  CHECK(printable_name("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");           // beyond U+10FFFF
  CHECK(printable_name("\xc2\x9b\xe2\x80\xae") == "\\xc2\\x9b\\xe2\\x80\\xae");  // C1, and a bidirectional control
  CHECK(printable_name(std::string(1000, 'x') + "\\\\") == std::string(1000, 'x') + "\\x5c\\x5c");
}

TEST_CASE("outputs are named through the label offset") {
  using Names = std::vector<std::string>;
  CHECK(name_outputs({"a", "b"}, 0) == Names{"a", "b"});
  CHECK(name_outputs({"a", "b"}, 1) == Names{"", "a", "b"});
  CHECK(name_outputs({"background", "a", "b"}, -1) == Names{"a", "b"});
  CHECK(name_outputs({"a"}, -3).empty());
  CHECK(name_outputs({}, 1).empty());
}

TEST_CASE("lists of classes must agree as far as both go") {
  const std::vector<std::string> two{"cat", "dog"}, three{"cat", "dog", "owl"}, shifted{"bat", "cat", "dog"}, none;
  for (const auto* other : {&two, &three, &none}) {
    CHECK_NOTHROW(require_same_classes({"data.train", three}, {"data.validation", *other}));
    CHECK_NOTHROW(require_same_classes({"data.train", *other}, {"data.validation", three}));
  }
  try {
    require_same_classes({"run/step-00000010.h5", two}, {"the data", shifted});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    CHECK_THAT(error.what(), ContainsSubstring("class 0 is 'cat' in run/step-00000010.h5 and 'bat' in the data"));
  }
  const std::vector<std::string> hostile{"cat\nstep 1: all is well\x1b[2K" + std::string(300, 'x')};
  try {
    require_same_classes({"run/step-00000010.h5", hostile}, {"the data", two});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), ContainsSubstring("class 0 is 'cat\\x0astep 1: all is well\\x1b[2Kxxx"));
    CHECK_THAT(error.what(), ContainsSubstring("... (327 bytes)'"));
  }
}

TEST_CASE("fewer classes are a part of others, and the same ones, others and none are not") {
  const std::vector<std::string> three = {"a", "b", "c"};
  CHECK(are_part_of({"c"}, three));
  CHECK_FALSE(are_part_of(three, three));
  CHECK_FALSE(are_part_of({"a", "d"}, three));
  CHECK_FALSE(are_part_of({}, three));
  CHECK_FALSE(are_part_of({"a"}, {}));
}
