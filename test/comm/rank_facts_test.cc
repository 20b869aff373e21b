#include "lockstep/comm/group/rank_facts.h"

#include "test/catch.h"

using lockstep::difference;
using lockstep::ExitCode;
using lockstep::FactRow;
using lockstep::group_by_value;

namespace {

using Texts = std::vector<std::string>;

FactRow row(Texts values) {
  return {.fact = {.name = "MPI", .value = values[0], .blame = ExitCode::config, .advice = "install one version"},
          .values = std::move(values)};
}

}  // namespace

TEST_CASE("ranks are grouped by what they say, in the order in which values first come") {
  CHECK(group_by_value(Texts{"a", "b", "a"}, Texts(3, "n")) == "a: rank 0@n, rank 2@n; b: rank 1@n");
  CHECK(group_by_value(Texts(7, "a"), Texts(7, "n")) == "a: ranks 0-6 on n");
}

TEST_CASE("a difference between ranks is a finding with its code and advice") {
  CHECK_FALSE(difference(row({"4", "4", "4"}), Texts(3, "n")).has_value());
  const auto found = difference(row({"4", "4", "5"}), Texts(3, "n"));
  REQUIRE(found.has_value());
  CHECK(found->what == "MPI differs between ranks (4: rank 0@n, rank 1@n; 5: rank 2@n)");
  CHECK(found->advice == "install one version");
  CHECK(found->blame == ExitCode::config);
}
