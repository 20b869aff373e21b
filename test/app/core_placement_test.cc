#include "app/core_placement.h"

#include "test/catch.h"

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

// `nodes` NUMA nodes of four cores each, with one or two threads a core: 0-3 and 4-7 are the first ones of two nodes.
std::vector<Processor> host_of(int nodes, int threads = 1) {
  std::vector<Processor> host;
  for (int cpu = 0; cpu < 4 * nodes * threads; ++cpu) {
    const int core = cpu % (4 * nodes);
    host.push_back({.number = cpu, .core = core, .node = core / 4});
  }
  return host;
}

RankCores rank_on(const char* cpus, int threads) { return {parse_cpu_list(cpus).value(), threads}; }

std::vector<std::string> texts(const std::vector<Finding>& findings) {
  std::vector<std::string> found;
  for (const Finding& finding : findings) found.push_back(finding.what);
  return found;
}

}  // namespace

TEST_CASE("ranks with cores of their own within a NUMA node are well placed") {
  const std::vector<RankCores> two = {rank_on("0-3", 4), rank_on("4-7", 4)};
  CHECK(judge_placement(host_of(2), two, 1).empty());
  std::vector<RankCores> eight;
  for (const char* cpu : {"0", "1", "2", "3", "4", "5", "6", "7"}) eight.push_back(rank_on(cpu, 1));
  CHECK(judge_placement(host_of(2), eight, 1).empty());
  const std::vector<RankCores> unbound(4, rank_on("0-3", 1));
  CHECK(judge_placement(host_of(1), unbound, 1).empty());
  CHECK(judge_placement({}, unbound, 1).empty());  // the system does not say
}

TEST_CASE("ranks that share cores are found, and the lines give each its own") {
  const std::vector<RankCores> ranks = {rank_on("0-1", 2), rank_on("1-2", 2), rank_on("3", 1)};
  const auto findings = judge_placement(host_of(1), ranks, 3);
  REQUIRE(texts(findings) == std::vector<std::string>{"2 ranks compute with 4 threads on 3 processors (0-2)"});
  CHECK(findings[0].advice ==
        "'mpirun -np 9 --map-by ppr:3:node:PE=1 --bind-to core', or 'srun --mpi=pmix --nodes=3 --ntasks=9 "
        "--ntasks-per-node=3 --cpus-per-task=1 --cpu-bind=cores'");
}

TEST_CASE("more ranks than cores are advised to be as many as the cores") {
  const auto findings = judge_placement(host_of(1), std::vector<RankCores>(6, rank_on("0-3", 1)), 1);
  REQUIRE(texts(findings) == std::vector<std::string>{"6 ranks compute with 6 threads on 4 processors (0-3)"});
  CHECK_THAT(findings[0].advice, ContainsSubstring("mpirun -np 4 --map-by ppr:4:node:PE=1 "));
}

TEST_CASE("a rank that straddles NUMA nodes is found, and the lines start one on each") {
  const auto findings = judge_placement(host_of(2), std::vector{rank_on("0-7", 8)}, 2);
  REQUIRE(
      texts(findings) ==
      std::vector<std::string>{"1 rank may run on several of 2 NUMA nodes, and the memory of each is on one of them"});
  CHECK_THAT(findings[0].advice, ContainsSubstring("mpirun -np 4 --map-by ppr:1:numa:PE=4 "));
  CHECK_THAT(findings[0].advice, ContainsSubstring("--ntasks-per-node=2 --cpus-per-task=4 "));
}

TEST_CASE("idle cores are found, by masks as well as by threads") {
  const std::vector<std::string> idle = {"2 ranks compute on 2 of 8 cores"};
  CHECK(texts(judge_placement(host_of(2), std::vector{rank_on("0", 1), rank_on("4", 1)}, 1)) == idle);
  CHECK(texts(judge_placement(host_of(2), std::vector{rank_on("0-3", 1), rank_on("4-7", 1)}, 1)) == idle);
}

TEST_CASE("threads of one core count as one core, and srun counts them as two processors") {
  CHECK(judge_placement(host_of(1, 2), std::vector<RankCores>(4, rank_on("0-7", 1)), 1).empty());
  CHECK_THAT(placement_options(host_of(2, 2), 2, 1), ContainsSubstring("ppr:1:numa:PE=4 "));
  CHECK_THAT(placement_options(host_of(2, 2), 2, 1), ContainsSubstring("--cpus-per-task=8 "));
}
