#include "lockstep/base/printable.h"

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("ordinary text, of any language, is printed as it is") {
  CHECK(printable("") == "");
  CHECK(printable("Mixed_5b.branch1x1.conv.weight") == "Mixed_5b.branch1x1.conv.weight");
  CHECK(printable("k\xc3\xa4se \xe7\x8c\xab \xf0\x9f\x90\x88") == "k\xc3\xa4se \xe7\x8c\xab \xf0\x9f\x90\x88");
}

TEST_CASE("what a terminal acts on is printed as bytes") {
  CHECK(printable("a\x1b[2Kb") == "a\\x1b[2Kb");
  CHECK(printable("a\nwhole: the checksum is right") == "a\\x0awhole: the checksum is right");
  CHECK(printable("a\tb\x7f") == "a\\x09b\\x7f");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\xc2\\x9b2J");  // C1 control sequence introducer
  CHECK(printable("\xe2\x80\xae"
                  "gpj.exe") == "\\xe2\\x80\\xaegpj.exe");  // right-to-left override
  CHECK(printable("\xe2\x80\xa8") == "\\xe2\\x80\\xa8");    // line separator
}

TEST_CASE("messages of several lines keep their line feeds and tabs and nothing else that acts on a terminal") {
  CHECK(printable_lines("two\n\tlines") == "two\n\tlines");
  CHECK(printable_lines("a\x1b[2K\r\x07\nb") == "a\\x1b[2K\\x0d\\x07\nb");
  CHECK(printable_lines("\xc2\x9b\xff\xe2\x80\xae") == "\\xc2\\x9b\\xff\\xe2\\x80\\xae");
  CHECK(printable_lines(std::string(5000, 'a')) == std::string(5000, 'a'));
}

TEST_CASE("bytes that are not UTF-8 are printed as bytes") {
  CHECK(printable("\xff") == "\\xff");
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // surrogate
  CHECK(printable("\xe7\x8c") == "\\xe7\\x8c");                    // cut off
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}

TEST_CASE("a long text is cut between characters and its length is told") {
  CHECK(printable(std::string(300, 'a'), 4) == "aaaa... (300 bytes)");
  CHECK(printable("abc\xc3\xa4", 4) == "abc... (5 bytes)");
  CHECK(printable("abcd", 4) == "abcd");
}
