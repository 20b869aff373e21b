#include "lockstep/io/path_pattern.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

const char* const kOddNames[] = {"exp[lr=0.1]", "d[1]",        "a{b,c}", "~",  "~root", "two words", "x,y",   "*",
                                 "what?",       "back\\slash", "]",      "}{", "[!a]",  "\\",        "ümlaut"};

}  // namespace

TEST_CASE("a directory that may not be looked into is named") {
  const ScratchDirectory scratch;
  const std::string closed = scratch / "closed";
  write_file(closed + "/train-0", "");
  CHECK(unreadable_directory(scratch / "absent/train-*").empty());
  CHECK(unreadable_directory(closed + "/test-*").empty());
  std::filesystem::permissions(scratch.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(closed, std::filesystem::perms::none);
  const uid_t user = ::geteuid();
  if (user == 0) REQUIRE(::seteuid(65534) == 0);  // root may look anywhere
  const std::vector<std::string> found = matching_paths(closed + "/train-*");
  const std::string by_pattern = unreadable_directory(closed + "/train-*");
  const std::string by_name = unreadable_directory(closed + "/train-0");
  if (user == 0) REQUIRE(::seteuid(0) == 0);
  std::filesystem::permissions(closed, std::filesystem::perms(0755));
  CHECK(found.empty());
  CHECK_THAT(by_pattern, ContainsSubstring("closed") && ContainsSubstring(": Permission denied"));
  CHECK(by_name == closed + "/train-0: Permission denied");
}

TEST_CASE("a directory of any name in front of a pattern stands for itself") {
  const ScratchDirectory scratch;
  for (const std::string name : {"d1", "ab", "ac", "x", "backslash", "whats"})
    write_file(scratch / name + "/train-9", "");
  for (const std::string name : kOddNames) write_file(scratch / name + "/train-0", "");
  for (const std::string name : kOddNames) {
    INFO(name);
    const std::string directory = scratch / name;
    const std::vector<std::string> only{directory + "/train-0"};
    CHECK(matching_paths(literal_pattern(directory) + "/train-*") == only);
    CHECK(matching_paths(literal_pattern(directory) + "/{train,test}-[0-9]") == only);
    CHECK(matching_paths(literal_pattern(directory) + "/train-0") == only);
    CHECK(matching_paths(literal_pattern(directory) + "/test-*").empty());
  }
}

TEST_CASE("a path that exists is meant itself, though it may look like a pattern") {
  const ScratchDirectory scratch;
  for (const std::string name : kOddNames) write_file(scratch / "in[side]/" + name, "");
  write_file(scratch / "ins/d1", "");
  for (const std::string name : kOddNames) {
    INFO(name);
    if (name != "back\\slash" && name != "\\") {
      CHECK(matching_paths(literal_pattern(scratch / "in[side]") + "/" + name) ==
            std::vector<std::string>{scratch / "in[side]/" + name});
    }
    CHECK(matching_paths(scratch / "in[side]/" + name) == std::vector<std::string>{scratch / "in[side]/" + name});
  }
}

TEST_CASE("a pattern finds what it matches") {
  const ScratchDirectory scratch;
  for (const char* name : {"b-2", "b-10", "a"}) write_file(scratch / name, "");
  std::vector<std::string> found = matching_paths(scratch / "{b-*,a}");
  std::ranges::sort(found);
  CHECK(found == std::vector<std::string>{scratch / "a", scratch / "b-10", scratch / "b-2"});
  CHECK(matching_paths(scratch / "c*").empty());
}
