#include "lockstep/observe/run_summary.h"

#include "test/catch.h"

using namespace lockstep;

namespace {

RankTimes times(double compute, double reduce) {
  RankTimes t;
  t.part(StepPart::compute) = compute;
  t.part(StepPart::reduce) = reduce;
  return t;
}

}  // namespace

TEST_CASE("a run of too few steps has no summary") {
  RunSummary summary;
  CHECK(summary.lines().empty());
  summary.add(std::vector<float>{1, 1}, 16, std::vector{times(1, 0)});
  CHECK(summary.lines().empty());
}

TEST_CASE("rate and percentiles leave out the first two steps") {
  RunSummary summary;
  summary.add(std::vector<float>{100}, 8, std::vector{times(100, 0)});
  std::vector<float> steps(101, 0.1F);
  steps[0] = 100;
  steps[99] = 0.4F;
  steps[100] = 0.5F;
  summary.add(steps, 8 * 101, std::vector{times(1, 0)});
  const auto lines = summary.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] ==
        "100 steps in a row took 10.7 s: 74.8 examples/sec, 74.8 a rank; a step took 0.1000 s (median), 0.1000 s (95 "
        "%), 0.4000 s (99 %), 0.5000 s (at most)");
  CHECK_THAT(lines[1], !ContainsSubstring("efficiency"));
}

TEST_CASE("with several ranks the wait for each other is what is lost") {
  RunSummary summary;
  summary.add(std::vector<float>(10, 1.0F), 80, std::vector{times(0.75, 0.25), times(1, 0)});
  const auto lines = summary.lines();
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], ContainsSubstring("8.0 examples/sec, 4.0 a rank"));
  CHECK(lines[1] ==
        "of the ranks' time went into data 0.0 %, compute 87.5 %, reduce 12.5 %, save 0.0 %; scaling "
        "efficiency 87.5 % (all but the wait for other ranks)");
}
