#include "lockstep/train/device_step_state.h"

#include <cstring>
#include <limits>

#include "test/catch.h"
#include "test/train/small_run.h"

using namespace lockstep;

namespace {

// Steps without a forward pass: the header of each is what is put into the arena.
struct Steps {
  explicit Steps(int ahead, Config config = small_config())
      : run(std::move(config)), frame(*run.backend, run.model, run.config, ahead) {
    frame.restart(*run.stream, 0);
  }
  void step(const StepHeader& global, double gradient = 1) {
    const ModelState& state = run.model.state();
    frame.begin(*run.stream, {.control = {.learning_rate = 0.25, .samples = 4}, .dropout = {{}}});
    float* gradients = state.gradients.as<float>();
    std::fill_n(gradients, state.trained_elements, 0.0F);
    gradients[3] = static_cast<float>(gradient);
    std::memcpy(gradients + state.trained_elements + state.moment_elements, &global, sizeof global);
    frame.decide(*run.stream);
    frame.end(*run.stream);
  }
  SmallRun run;
  DeviceStepState frame;
};

}  // namespace

TEST_CASE("with the host not ahead every step's outcome is there at once") {
  Steps steps(0);
  CHECK_FALSE(steps.frame.next_outcome());
  for (int i = 1; i <= 3; ++i) {
    steps.step({.samples = 8, .loss = static_cast<float>(i)}, 4);
    const auto outcome = steps.frame.next_outcome();
    REQUIRE(outcome);
    CHECK(outcome->loss == i);
    CHECK(outcome->norm == 0.5);
    CHECK(outcome->updates == i);
    CHECK_FALSE(steps.frame.next_outcome());
  }
}

TEST_CASE("with the host two steps ahead the outcome of a step is there two steps later, the rest on demand") {
  Steps steps(2);
  for (int i = 1; i <= 5; ++i) {
    steps.step({.samples = 8, .loss = static_cast<float>(i)});
    const auto outcome = steps.frame.next_outcome();
    REQUIRE(outcome.has_value() == (i > 2));
    if (outcome) CHECK(outcome->loss == i - 2);
  }
  CHECK_FALSE(steps.frame.next_outcome());
  CHECK(steps.frame.next_outcome(true)->loss == 4);
  CHECK(steps.frame.next_outcome(true)->loss == 5);
  CHECK_FALSE(steps.frame.next_outcome(true));
}

TEST_CASE("no step may begin before there is room for its outcome") {
  Steps steps(1);
  steps.step({.samples = 8});
  steps.step({.samples = 8});
  CHECK_THROWS_WITH(steps.step({.samples = 8}), ContainsSubstring("2 steps are in flight already"));
}

TEST_CASE("the count of updates goes on from where the run starts, and a restart ends a halt") {
  Steps steps(0);
  steps.frame.restart(*steps.run.stream, 41);
  steps.step({.samples = 8});
  CHECK(steps.frame.next_outcome()->updates == 42);
  steps.step({.samples = 8, .not_finite = 1});
  CHECK(steps.frame.next_outcome()->applied == 0);
  steps.step({.samples = 8});
  CHECK(steps.frame.next_outcome()->applied == 0);  // train.not_finite is not "skip"
  steps.frame.restart(*steps.run.stream, 7);
  steps.step({.samples = 8});
  const auto outcome = steps.frame.next_outcome();
  CHECK(outcome->applied == 1);
  CHECK(outcome->updates == 8);
}

TEST_CASE("moments and header behind the gradients are no part of the norm") {
  Steps steps(0);
  const ModelState& state = steps.run.model.state();
  if (state.moment_elements > 0) {
    state.gradients.as<float>()[state.trained_elements] = std::numeric_limits<float>::quiet_NaN();
  }
  steps.step({.samples = 1, .loss = 1e30F}, 3);
  CHECK(steps.frame.next_outcome()->norm == 3);
}
