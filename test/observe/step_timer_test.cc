#include "lockstep/observe/step_timer.h"

#include <chrono>
#include <thread>

#include "test/catch.h"

using namespace lockstep;

namespace {

void spend(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace

TEST_CASE("each moment of a step belongs to exactly one part") {
  StepTimer timer;
  const double begin = monotonic_seconds();
  timer.enter(StepPart::data);
  spend(0.01);
  timer.enter(StepPart::compute);
  spend(0.03);
  timer.enter(StepPart::reduce);
  spend(0.02);
  timer.enter(StepPart::compute);
  spend(0.01);
  timer.finish_step(32);
  const double elapsed = monotonic_seconds() - begin;
  CHECK(timer.seconds(StepPart::data) >= 0.01);
  CHECK(timer.seconds(StepPart::compute) >= 0.04);
  CHECK(timer.seconds(StepPart::reduce) >= 0.02);
  CHECK(timer.seconds(StepPart::save) == 0);
  CHECK(timer.total_seconds() >= 0.07);
  CHECK(timer.total_seconds() <= elapsed);
  CHECK(timer.total_seconds() == Approx(timer.seconds(StepPart::data) + timer.seconds(StepPart::compute) +
                                        timer.seconds(StepPart::reduce) + timer.seconds(StepPart::save)));
}

TEST_CASE("what lies between pause and the next part belongs to none") {
  StepTimer timer;
  spend(0.02);  // before the first
  const double begin = monotonic_seconds();
  timer.enter(StepPart::compute);
  timer.pause();
  spend(0.05);
  timer.enter(StepPart::save);
  timer.pause();
  CHECK(timer.total_seconds() <= monotonic_seconds() - begin - 0.05);
}

TEST_CASE("an interval counts its own steps and samples, and the next one starts from zero") {
  StepTimer timer;
  timer.enter(StepPart::data);
  spend(0.01);
  timer.finish_step(32);
  timer.finish_step(17);
  CHECK(timer.steps() == 2);
  CHECK(timer.samples() == 49);
  const double begin = monotonic_seconds();
  timer.restart();
  CHECK(timer.steps() == 0);
  CHECK(timer.samples() == 0);
  CHECK(timer.total_seconds() == 0);
  timer.finish_step(1);  // the part that ran goes on
  CHECK(timer.seconds(StepPart::data) <= monotonic_seconds() - begin);
}

TEST_CASE("the time of each step is kept until the interval ends, and totals beyond it") {
  StepTimer timer;
  timer.enter(StepPart::data);
  spend(0.02);
  timer.finish_step(1);
  spend(0.01);
  timer.finish_step(1);
  REQUIRE(timer.step_seconds().size() == 2);
  CHECK(timer.step_seconds()[0] >= 0.02F);
  CHECK(timer.step_seconds()[1] >= 0.01F);
  CHECK(timer.step_seconds()[0] + timer.step_seconds()[1] == Approx(timer.total_seconds()).epsilon(1e-3));
  timer.pause();
  const double before = timer.totals().seconds[static_cast<size_t>(StepPart::data)];
  CHECK(before >= 0.03);
  timer.restart();
  CHECK(timer.step_seconds().empty());
  CHECK(timer.totals().steps == 2);
  CHECK(timer.totals().seconds[static_cast<size_t>(StepPart::data)] == before);
}
