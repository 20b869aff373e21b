#include "lockstep/base/cpu_topology.h"

#include <fmt/format.h>

#include "lockstep/base/number_ranges.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("a list of processors is read and written as the kernel does") {
  CHECK(parse_cpu_list("0-3,8\n") == std::vector{0, 1, 2, 3, 8});
  CHECK(parse_cpu_list("") == std::vector<int>{});
  CHECK(number_ranges<int>(std::vector{0, 1, 2, 3, 8}) == "0-3,8");
  CHECK(number_ranges<int>(std::vector<int>{}).empty());
  for (const char* wrong : {"a", "3-1", "-1", "1-", "0-99999999", "1,,2"})
    CHECK_FALSE(parse_cpu_list(wrong).has_value());
}

TEST_CASE("cores and NUMA nodes come from the files of the system") {
  const ScratchDirectory system;
  write_file(system / "cpu/online", "0-3,5-7\n");
  write_file(system / "node/online", "0-1\n");
  write_file(system / "node/node0/cpulist", "0-1,4-5\n");
  write_file(system / "node/node1/cpulist", "2-3,6-7\n");
  for (const int cpu : {0, 1, 2, 3, 5, 6, 7}) {  // two threads a core
    write_file(system / fmt::format("cpu/cpu{}/topology/thread_siblings_list", cpu),
               fmt::format("{},{}\n", cpu % 4, cpu % 4 + 4));
  }
  const std::vector<Processor> found = processors_of(system.path());
  REQUIRE(found.size() == 7);
  CHECK((found[1].number == 1 && found[1].core == 1 && found[1].node == 0));
  CHECK((found[4].number == 5 && found[4].core == 1 && found[4].node == 0));
  CHECK((found[6].number == 7 && found[6].core == 3 && found[6].node == 1));
}

TEST_CASE("without topology and nodes, every processor is a core of node 0") {
  const ScratchDirectory system;
  CHECK(processors_of(system.path()).empty());
  write_file(system / "cpu/online", "0-1\n");
  const std::vector<Processor> found = processors_of(system.path());
  REQUIRE(found.size() == 2);
  CHECK((found[1].core == 1 && found[1].node == 0));
}

TEST_CASE("the innermost control group says which processors are allowed") {
  const ScratchDirectory root;
  CHECK_FALSE(control_group_cpus(root / "membership", root.path()).has_value());
  write_file(root / "membership", "0::/job/step\n");
  write_file(root / "cpuset.cpus.effective", "0-63\n");
  write_file(root / "job/cpuset.cpus.effective", "8-15\n");
  CHECK(control_group_cpus(root / "membership", root.path()) == parse_cpu_list("8-15"));
  write_file(root / "membership", "3:cpuset:/old\n");
  write_file(root / "cpuset/old/cpuset.effective_cpus", "2-3\n");
  CHECK(control_group_cpus(root / "membership", root.path()) == std::vector{2, 3});
}
