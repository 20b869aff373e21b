#include "lockstep/train/schedule.h"

#include <cmath>

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("a constant schedule keeps the base rate") {
  const LearningRateSchedule schedule{.kind = ScheduleKind::constant, .base_rate = 0.1, .total_steps = 10};
  CHECK(schedule.rate(0) == 0.1);
  CHECK(schedule.rate(9) == 0.1);
  CHECK(schedule.rate(1000) == 0.1);
}

TEST_CASE("warm-up rises linearly and reaches the full rate at its last step") {
  const LearningRateSchedule schedule{
      .kind = ScheduleKind::constant, .base_rate = 0.4, .warmup_steps = 4, .total_steps = 10};
  CHECK(schedule.rate(0) == Approx(0.1));
  CHECK(schedule.rate(1) == Approx(0.2));
  CHECK(schedule.rate(3) == Approx(0.4));
  CHECK(schedule.rate(4) == Approx(0.4));
}

TEST_CASE("the exponential schedule is a staircase counted from step 0") {
  const LearningRateSchedule schedule{
      .kind = ScheduleKind::exponential, .base_rate = 1, .total_steps = 100, .decay_rate = 0.5, .decay_steps = 10};
  CHECK(schedule.rate(0) == 1);
  CHECK(schedule.rate(9) == 1);
  CHECK(schedule.rate(10) == 0.5);
  CHECK(schedule.rate(19) == 0.5);
  CHECK(schedule.rate(20) == 0.25);
  CHECK(schedule.rate(35) == 0.125);
}

TEST_CASE("warm-up multiplies the exponential schedule without moving its edges") {
  const LearningRateSchedule schedule{
      .kind = ScheduleKind::exponential, .base_rate = 1, .warmup_steps = 20, .decay_rate = 0.5, .decay_steps = 10};
  CHECK(schedule.rate(9) == Approx(0.5));
  CHECK(schedule.rate(10) == Approx(0.5 * 11 / 20));
  CHECK(schedule.rate(20) == 0.25);
}

TEST_CASE("the cosine schedule falls from the end of warm-up to 0 at the last step") {
  const LearningRateSchedule schedule{
      .kind = ScheduleKind::cosine, .base_rate = 2, .warmup_steps = 10, .total_steps = 110};
  CHECK(schedule.rate(9) == Approx(2));
  CHECK(schedule.rate(10) == Approx(2));
  CHECK(schedule.rate(60) == Approx(1));
  CHECK(schedule.rate(109) > 0);
  CHECK(schedule.rate(110) == 0);
  CHECK(schedule.rate(5000) == 0);
}

TEST_CASE("epochs become steps by the size of the data and the global batch") {
  Config config;
  config.optimizer.lr = 0.045;
  config.schedule = {.name = ScheduleKind::exponential, .warmup_epochs = 0.5, .decay_rate = 0.94, .decay_epochs = 2};
  const LearningRateSchedule schedule =
      make_learning_rate_schedule(config, {.samples_per_epoch = 1281167, .global_batch = 1600, .total_steps = 80073});
  CHECK(schedule.base_rate == 0.045);
  CHECK(schedule.warmup_steps == 400);  // 400.36
  CHECK(schedule.decay_steps == 1601);  // 1601.46, cut
  CHECK(schedule.total_steps == 80073);
  CHECK(schedule.rate(1600) == Approx(0.045));
  CHECK(schedule.rate(1601) == Approx(0.045 * 0.94));
}

TEST_CASE("the linear rule scales the rate by the global batch over 256") {
  Config config;
  config.optimizer.lr = 0.1;
  config.optimizer.scale_lr = true;
  config.schedule.name = ScheduleKind::constant;
  const LearningRateSchedule schedule =
      make_learning_rate_schedule(config, {.samples_per_epoch = 1000, .global_batch = 512, .total_steps = 2});
  CHECK(schedule.rate(0) == Approx(0.2));
}

TEST_CASE("an interval shorter than a step lasts one step") {
  Config config;
  config.schedule = {.name = ScheduleKind::exponential, .decay_rate = 0.5, .decay_epochs = 0.01};
  const LearningRateSchedule schedule =
      make_learning_rate_schedule(config, {.samples_per_epoch = 64, .global_batch = 64, .total_steps = 2});
  CHECK(schedule.decay_steps == 1);
}

TEST_CASE("the intervals of the step schedule start at the first step of their epoch and do not drift") {
  Config config;
  config.optimizer.lr = 1;
  config.schedule = {.name = ScheduleKind::step, .decay_rate = 0.1, .decay_epochs = 1};
  // 2.5 steps an epoch: epochs begin within steps 2, 5, 7 and 10.
  const LearningRateSchedule schedule =
      make_learning_rate_schedule(config, {.samples_per_epoch = 10, .global_batch = 4, .total_steps = 100});
  CHECK(schedule.rate(2) == 1);
  CHECK(schedule.rate(3) == Approx(0.1));
  CHECK(schedule.rate(4) == Approx(0.1));
  CHECK(schedule.rate(5) == Approx(0.01));
  CHECK(schedule.rate(7) == Approx(0.01));
  CHECK(schedule.rate(8) == Approx(0.001));
  CHECK(schedule.rate(10) == Approx(1e-4));
}

TEST_CASE("intervals that only rounding keeps from a whole number of steps are not a step late") {
  Config config;
  config.optimizer.lr = 1;
  config.schedule = {.name = ScheduleKind::step, .decay_rate = 0.5, .decay_epochs = 0.1};
  const LearningRateSchedule schedule =
      make_learning_rate_schedule(config, {.samples_per_epoch = 30, .global_batch = 1, .total_steps = 100});
  for (int64_t interval = 1; interval < 9; ++interval) {
    CHECK(schedule.rate(3 * interval - 1) == std::pow(0.5, interval - 1));
    CHECK(schedule.rate(3 * interval) == std::pow(0.5, interval));
  }
}

TEST_CASE("the piecewise schedule takes the factor of the last boundary reached") {
  Config config;
  config.optimizer.lr = 0.4;
  config.schedule.name = ScheduleKind::piecewise;
  config.schedule.boundaries = {2, 3.5, 5};
  config.schedule.factors = {0.5, 2, 0};
  const LearningRateSchedule schedule =
      make_learning_rate_schedule(config, {.samples_per_epoch = 100, .global_batch = 10, .total_steps = 60});
  CHECK(schedule.rate(0) == 0.4);
  CHECK(schedule.rate(19) == 0.4);
  CHECK(schedule.rate(20) == 0.2);
  CHECK(schedule.rate(34) == 0.2);
  CHECK(schedule.rate(35) == 0.8);
  CHECK(schedule.rate(49) == 0.8);
  CHECK(schedule.rate(50) == 0);
  CHECK(schedule.rate(1000) == 0);
}

TEST_CASE("the linear schedule falls in equal parts from the end of warm-up to 0 at the last step") {
  const LearningRateSchedule schedule{
      .kind = ScheduleKind::linear, .base_rate = 2, .warmup_steps = 10, .total_steps = 110};
  CHECK(schedule.rate(0) == Approx(0.2));
  CHECK(schedule.rate(10) == 2);
  CHECK(schedule.rate(35) == Approx(1.5));
  CHECK(schedule.rate(60) == Approx(1));
  CHECK(schedule.rate(109) == Approx(0.02));
  CHECK(schedule.rate(110) == 0);
  CHECK(schedule.rate(111) == 0);
}

TEST_CASE("every schedule can be warmed up") {
  for (const std::string_view name : kWords<ScheduleKind>) {
    INFO(name);
    Config config;
    config.optimizer.lr = 1;
    config.schedule = {
        .name = *find_word<ScheduleKind>(name), .warmup_epochs = 2, .decay_rate = 0.5, .decay_epochs = 50};
    config.schedule.boundaries = {50};
    config.schedule.factors = {0.5};
    const LearningRateSchedule schedule =
        make_learning_rate_schedule(config, {.samples_per_epoch = 20, .global_batch = 10, .total_steps = 1000});
    for (int64_t step = 0; step < 4; ++step) {
      CHECK(schedule.rate(step) == Approx(static_cast<double>(step + 1) / 4));
    }
    CHECK(schedule.rate(4) == Approx(1).epsilon(0.01));
  }
}
