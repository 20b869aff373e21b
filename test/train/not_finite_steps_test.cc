#include "lockstep/train/not_finite_steps.h"

#include <limits>

#include "test/catch.h"
#include "test/train/small_run.h"
#include "test/train/world.h"

using namespace lockstep;
using testing::world;

namespace {

// Infinite on the last rank.
StepOutcome infinite_loss() {
  const bool last = world().rank() == world().size() - 1;
  StepOutcome outcome;
  outcome.own_loss = last ? std::numeric_limits<double>::infinity() : 1;
  return outcome;
}

struct Rule {
  explicit Rule(const char* rule) : steps(world(), run.program, {.rule = rule, .wait_seconds = 30}) {}
  SmallRun run{small_config()};
  NotFiniteSteps steps;
};

}  // namespace

TEST_CASE("the rule stop ends all ranks alike at the first such step and names the rank") {
  Rule rule("stop");
  const auto error = agreed_error_of([&] { rule.steps.skip(7, infinite_loss()); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(),
             ContainsSubstring("step 7: the loss is not finite on " + world().describe(world().size() - 1) + ";"));
}

TEST_CASE("the rule skip allows ten such steps in a row, counted anew after one that was applied") {
  Rule rule("skip");
  for (int round = 0; round < 2; ++round) {
    for (int step = 1; step <= 10; ++step) CHECK_FALSE(rule.steps.skip(step, infinite_loss()));
    if (round == 0) rule.steps.applied();
  }
  CHECK(agreed_error_of([&] { rule.steps.skip(11, infinite_loss()); }));
}

TEST_CASE("the rule rollback goes back at the third such step in a row, three times") {
  Rule rule("rollback");
  for (int times = 1; times <= 3; ++times) {
    CHECK_FALSE(rule.steps.skip(1, infinite_loss()));
    CHECK_FALSE(rule.steps.skip(2, infinite_loss()));
    CHECK(rule.steps.skip(3, infinite_loss()));
    CHECK_THAT(rule.steps.went_back(3, "run/step-00000000.h5"),
               ContainsSubstring(fmt::format("; back from step 3 to run/step-00000000.h5 ({} of 3 times)", times)));
  }
  rule.steps.skip(1, infinite_loss());
  rule.steps.skip(2, infinite_loss());
  const auto error = agreed_error_of([&] { rule.steps.skip(3, infinite_loss()); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("again after 3 returns to a checkpoint"));
}

TEST_CASE("where every loss is finite the parameter whose gradient is not is named") {
  Rule rule("skip");
  StepOutcome outcome;
  outcome.own_loss = 1;
  outcome.bad_gradient = 0;
  rule.steps.skip(2, outcome);
  CHECK_THAT(rule.steps.where(), ContainsSubstring("step 2: the gradient of "));
  CHECK_THAT(rule.steps.where(), ContainsSubstring(" is not finite"));
}
