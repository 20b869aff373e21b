#include "lockstep/train/schedule.h"

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("a constant schedule keeps the base rate for ever") {
  const LearningRateSchedule schedule{.name = "constant", .base_rate = 0.1, .total_steps = 10};
  CHECK(schedule.rate(0) == 0.1);
  CHECK(schedule.rate(9) == 0.1);
  CHECK(schedule.rate(1000) == 0.1);
}

TEST_CASE("warm-up rises linearly and reaches the full rate at its last step") {
  const LearningRateSchedule schedule{.name = "constant", .base_rate = 0.4, .warmup_steps = 4, .total_steps = 10};
  CHECK(schedule.rate(0) == Approx(0.1));
  CHECK(schedule.rate(1) == Approx(0.2));
  CHECK(schedule.rate(3) == Approx(0.4));
  CHECK(schedule.rate(4) == Approx(0.4));
}

TEST_CASE("the exponential schedule falls in stairs counted from step 0") {
  const LearningRateSchedule schedule{
      .name = "exponential", .base_rate = 1, .total_steps = 100, .decay_rate = 0.5, .decay_steps = 10};
  CHECK(schedule.rate(0) == 1);
  CHECK(schedule.rate(9) == 1);
  CHECK(schedule.rate(10) == 0.5);
  CHECK(schedule.rate(19) == 0.5);
  CHECK(schedule.rate(20) == 0.25);
  CHECK(schedule.rate(35) == 0.125);
}

TEST_CASE("warm-up multiplies the exponential schedule without moving its stairs") {
  const LearningRateSchedule schedule{
      .name = "exponential", .base_rate = 1, .warmup_steps = 20, .decay_rate = 0.5, .decay_steps = 10};
  CHECK(schedule.rate(9) == Approx(0.5));
  CHECK(schedule.rate(10) == Approx(0.5 * 11 / 20));
  CHECK(schedule.rate(20) == 0.25);
}

TEST_CASE("the cosine schedule falls from the end of warm-up to 0 at the last step") {
  const LearningRateSchedule schedule{.name = "cosine", .base_rate = 2, .warmup_steps = 10, .total_steps = 110};
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
  config.schedule = {.name = "exponential", .warmup_epochs = 0.5, .decay_rate = 0.94, .decay_epochs = 2};
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
  config.schedule.name = "constant";
  const LearningRateSchedule schedule =
      make_learning_rate_schedule(config, {.samples_per_epoch = 1000, .global_batch = 512, .total_steps = 2});
  CHECK(schedule.rate(0) == Approx(0.2));
}

TEST_CASE("a stair shorter than a step lasts one step") {
  Config config;
  config.schedule = {.name = "exponential", .decay_rate = 0.5, .decay_epochs = 0.01};
  const LearningRateSchedule schedule =
      make_learning_rate_schedule(config, {.samples_per_epoch = 64, .global_batch = 64, .total_steps = 2});
  CHECK(schedule.decay_steps == 1);
}

TEST_CASE("a schedule that does not exist is a configuration error") {
  Config config;
  config.schedule.name = "linear";
  try {
    make_learning_rate_schedule(config, {.samples_per_epoch = 1, .global_batch = 1, .total_steps = 1});
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK_THAT(std::string(e.what()), ContainsSubstring("schedule.name = 'linear'"));
  }
}
