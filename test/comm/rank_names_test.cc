#include "lockstep/comm/group/rank_names.h"

#include <fmt/format.h>

#include <numeric>

#include "test/catch.h"

using lockstep::fold_hosts;
using lockstep::fold_ranks;
using lockstep::group_ranks;

namespace {

using Texts = std::vector<std::string>;

// 1,024 ranks, 8 on each of host001 to host128.
Texts hosts_of_1024_ranks() {
  Texts hosts;
  for (int r = 0; r < 1024; ++r) hosts.push_back(fmt::format("host{:03}", r / 8 + 1));
  return hosts;
}

std::vector<int> range(int first, int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

}  // namespace

TEST_CASE("hosts that differ in their last number are folded, each once") {
  CHECK(fold_hosts(hosts_of_1024_ranks()) == "host[001-128]");
  CHECK(fold_hosts(Texts{"node3", "node1", "node3", "node2", "node7"}) == "node[1-3,7]");
  CHECK(fold_hosts(Texts{"r1n2.cluster", "r1n3.cluster", "r2n1.cluster"}) == "r1n[2-3].cluster, r2n1.cluster");
}

TEST_CASE("a folded name says how many digits the numbers have") {
  CHECK(fold_hosts(Texts{"n9", "n10", "n11"}) == "n9, n[10-11]");
  CHECK(fold_hosts(Texts{"n09", "n10"}) == "n[09-10]");
}

TEST_CASE("hosts without a number, or with one that is too long, stay as they are") {
  CHECK(fold_hosts(Texts{"login", "localhost", "login"}) == "localhost, login");
  CHECK(fold_hosts(Texts{"7", "n99999999999999999999999"}) == "7, n99999999999999999999999");
}

TEST_CASE("few ranks are named with their hosts, many as ranges") {
  const Texts hosts = hosts_of_1024_ranks();
  CHECK(fold_ranks({}, hosts).empty());
  CHECK(fold_ranks(std::vector{0, 9, 1023}, hosts) == "rank 0@host001, rank 9@host002, rank 1023@host128");
  CHECK(fold_ranks(range(0, 1024), hosts) == "ranks 0-1023 on host[001-128]");
  std::vector<int> some = range(8, 16);
  some.push_back(1000);
  CHECK(fold_ranks(some, hosts) == "ranks 8-23,1000 on host[002-003,126]");
}

TEST_CASE("ranks are grouped by their text, in the order of the first of each") {
  Texts texts(1024, "a");
  texts[1] = texts[1000] = "b";
  const auto groups = group_ranks(texts);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].text == "a");
  CHECK(groups[0].ranks.size() == 1022);
  CHECK(groups[1].text == "b");
  CHECK(groups[1].ranks == std::vector{1, 1000});
}
