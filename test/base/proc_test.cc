#include "lockstep/base/proc.h"

#include <unistd.h>

#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("a field of a system file is found by its whole name") {
  constexpr std::string_view kText =
      "MemTotalHuge: 1 kB\nMemTotal:       24683652 kB\nmodel name\t: A: B\nEmpty:\nLast: x";
  CHECK(system_field(kText, "MemTotal") == "24683652 kB");
  CHECK(system_field(kText, "model name") == "A: B");
  CHECK(system_field(kText, "Empty").empty());
  CHECK(system_field(kText, "Last") == "x");
  CHECK(system_field(kText, "Mem").empty());
  CHECK(system_field("", "Mem").empty());
}

TEST_CASE("a system file that cannot be read has no text") {
  CHECK_FALSE(read_system_file("/proc/self/no such file"));
  CHECK_FALSE(read_system_file("/proc/self"));  // a read fails after the file was opened
}

TEST_CASE("a process is described although its name looks like a part of the description") {
  const ScratchDirectory process;
  write_file(process / "stat", "7 (a) Z 9) S 3 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 4711 23 24\n");
  const auto status = process_status(process.path());
  REQUIRE(status);
  CHECK(status->state == 'S');
  CHECK(status->parent == 3);
  CHECK(status->start_time == "4711");
  CHECK_FALSE(process_status(process / "none"));
}

TEST_CASE("this process has a parent, and a variable is found by its whole name") {
  CHECK(process_status("/proc/self").value().parent == ::getppid());
  const ScratchDirectory process;
  write_file(process / "environ", std::string("RANKS=4\0RANK=1\0EMPTY=\0", 22));
  CHECK(process_variable(process.path(), "RANK") == "1");
  CHECK(process_variable(process.path(), "EMPTY") == "");
  CHECK_FALSE(process_variable(process.path(), "RAN"));
}
