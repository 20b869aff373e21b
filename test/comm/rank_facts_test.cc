#include "lockstep/comm/group/rank_facts.h"

#include "test/catch.h"

using lockstep::difference;
using lockstep::ExitCode;
using lockstep::FactRow;
using lockstep::group_by_value;

namespace {

using Texts = std::vector<std::string>;

Texts ranks(int count) {
  Texts names;
  for (int r = 0; r < count; ++r) names.push_back("rank " + std::to_string(r));
  return names;
}

FactRow row(Texts values) {
  return {.fact = {.name = "MPI", .value = values[0], .blame = ExitCode::config, .advice = "install one version"},
          .values = std::move(values)};
}

}  // namespace

TEST_CASE("ranks are grouped by what they say, in the order in which values first come") {
  CHECK(group_by_value(Texts{"a", "b", "a"}, ranks(3)) == "a: rank 0, rank 2; b: rank 1");
}

TEST_CASE("of many ranks that say the same, three are named") {
  CHECK(group_by_value(Texts(4, "a"), ranks(4)) == "a: rank 0, rank 1, rank 2, rank 3");
  CHECK(group_by_value(Texts(7, "a"), ranks(7)) == "a: rank 0, rank 1, rank 2 and 4 more");
}

TEST_CASE("a difference between ranks is a finding with its code and advice") {
  CHECK_FALSE(difference(row({"4", "4", "4"}), ranks(3)).has_value());
  const auto found = difference(row({"4", "4", "5"}), ranks(3));
  REQUIRE(found.has_value());
  CHECK(found->what == "MPI differs between ranks (4: rank 0, rank 1; 5: rank 2)");
  CHECK(found->advice == "install one version");
  CHECK(found->blame == ExitCode::config);
}
