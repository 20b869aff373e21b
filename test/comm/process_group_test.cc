#include "lockstep/comm/group/process_group.h"

#include <array>

#include "test/catch.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::world;

TEST_CASE("ranks of one machine share a host and count locally") {
  ProcessGroup& group = world();
  CHECK(group.local_size() == group.size());
  CHECK(group.local_rank() == group.rank());
  CHECK_FALSE(group.host().empty());
  for (int r = 0; r < group.size(); ++r) CHECK(group.host(r) == group.host());
  CHECK(group.describe(0) == "rank 0@" + group.host());
}

TEST_CASE("a group of one rank waits for no other") {
  ProcessGroup self = ProcessGroup::self(world());
  CHECK(self.is_root());
  CHECK(self.size() == 1);
  CHECK(self.local_size() == 1);
  CHECK(self.describe(0) == "rank 0@" + world().host());
  if (world().is_root()) return;  // the others go on without it
  self.barrier({"itself"});
  double value = 3;
  self.all_reduce_sum(std::span(&value, 1), {"a value"});
  CHECK(value == 3);
  CHECK(self.broadcast(std::string("mine"), {"a text"}) == "mine");
  CHECK(self.all_gather("mine", {"a text"}) == std::vector<std::string>{"mine"});
}

TEST_CASE("a group has its limits by phase, and that of training without a board") {
  ProcessGroup self = ProcessGroup::self(world());
  CHECK(self.limit() == 30);  // the world's
  WaitLimits limits;
  limits.fill(7);
  limits[static_cast<size_t>(RunPhase::save)] = 70;
  self.set_limits(limits);
  CHECK(self.limit() == 7);
  CHECK(self.limit(RunPhase::save) == 70);
}

TEST_CASE("text and vectors of any length come from rank 0") {
  ProcessGroup& group = world();
  for (const size_t length : {size_t{0}, size_t{1}, size_t{4097}, size_t{3'000'001}}) {
    const std::string sent(length, 'x');
    CHECK(group.broadcast(group.is_root() ? sent : std::string("other"), {"a text"}) == sent);
  }
  const std::vector<double> values = {1.5, -2.0};
  CHECK(group.broadcast(group.is_root() ? values : std::vector<double>(), {"values"}) == values);
}

TEST_CASE("sums and maxima go over all ranks element by element") {
  ProcessGroup& group = world();
  const int64_t n = group.size(), r = group.rank();
  std::array<int64_t, 2> integers = {r, int64_t{1} << 40};
  group.all_reduce_sum(integers, {"integers"});
  CHECK(integers[0] == n * (n - 1) / 2);
  CHECK(integers[1] == n << 40);
  std::array<double, 1> reals = {0.5};
  group.all_reduce_sum(reals, {"reals"});
  CHECK(reals[0] == 0.5 * static_cast<double>(n));
  std::array<int64_t, 2> most = {r, -r};
  group.all_reduce_max(most, {"integers"});
  CHECK(most == std::array<int64_t, 2>{n - 1, 0});
  std::array<double, 1> highest = {static_cast<double>(r)};
  group.all_reduce_max(highest, {"reals"});
  CHECK(highest[0] == static_cast<double>(n - 1));
}

TEST_CASE("gathering keeps the order of ranks, also with empty texts") {
  ProcessGroup& group = world();
  const std::vector<std::string> texts =
      group.all_gather(std::string(static_cast<size_t>(group.rank()), 'r'), {"texts"});
  REQUIRE(texts.size() == static_cast<size_t>(group.size()));
  for (size_t r = 0; r < texts.size(); ++r) CHECK(texts[r] == std::string(r, 'r'));
  const std::array<int64_t, 2> mine = {group.rank(), 7};
  const std::vector<int64_t> all = group.all_gather(mine, {"numbers"});
  REQUIRE(all.size() == 2 * texts.size());
  for (size_t r = 0; r < texts.size(); ++r) {
    CHECK(all[2 * r] == static_cast<int64_t>(r));
    CHECK(all[2 * r + 1] == 7);
  }
}

TEST_CASE("a barrier can be repeated at once") {
  for (int i = 0; i < 50; ++i) world().barrier({"the next turn"});
}
