#include "train/run_plan.h"

#include <cmath>
#include <limits>

#include "test/catch.h"

using namespace lockstep;

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

Config::Train length(double epochs, int64_t steps) {
  Config::Train train;
  train.epochs = epochs;
  train.steps = steps;
  return train;
}

}  // namespace

TEST_CASE("epochs are rounded up to samples, but not for a factor's rounding") {
  CHECK(samples_of(2, 1437) == 2874);
  CHECK(samples_of(0.5, 1437) == 719);
  CHECK(0.07 * 100 > 7);  // in floating point
  CHECK(samples_of(0.07, 100) == 7);
  CHECK(samples_of(0.7, 10) == 7);
  CHECK(samples_of(1.0 / 3, 3) == 1);
  CHECK(samples_of(1e-6, 10) == 1);
  CHECK(samples_of(0, 10) == 0);
  for (int64_t tenths = 1; tenths <= 1000; ++tenths) {
    CHECK(samples_of(static_cast<double>(tenths) / 10, 1'281'170) == tenths * 128'117);
  }
}

TEST_CASE("a run ends with its epochs or its steps, whichever comes first") {
  CHECK(total_steps(length(2, 0), {100, 8}, {}) == 25);
  CHECK(total_steps(length(2, 0), {101, 8}, {}) == 26);  // 25.25
  CHECK(total_steps(length(0.5, 0), {101, 8}, {}) == 7);
  CHECK(total_steps(length(2, 10), {100, 8}, {}) == 10);
  CHECK(total_steps(length(2, 30), {100, 8}, {}) == 25);
  CHECK(total_steps(length(0, 30), {100, 8}, {}) == 30);
}

TEST_CASE("a run that resumes ends at the step where it would have ended") {
  for (const double epochs : {1.0, 1.1, 2.5, 3.3}) {
    for (const int64_t batch : {1, 7, 8, 100, 333}) {
      const Config::Train train = length(epochs, 0);
      const int64_t whole = total_steps(train, {100, batch}, {});
      for (int64_t step = 0; step <= whole; ++step) {
        CHECK(total_steps(train, {100, batch}, {.step = step, .position = step * batch}) == whole);
      }
    }
  }
}

TEST_CASE("with another global batch the samples count, and a run past its end has nothing left") {
  CHECK(total_steps(length(2, 0), {100, 10}, {.step = 10, .position = 80}) == 22);
  CHECK(total_steps(length(1, 0), {100, 10}, {.step = 30, .position = 240}) == 30);
  CHECK(total_steps(length(0, 20), {100, 10}, {.step = 30, .position = 240}) == 20);
}

TEST_CASE("evaluation follows every multiple of its period, and an exact multiple belongs to the one before") {
  CHECK(next_evaluation(1, 100, 0) == 100);
  CHECK(next_evaluation(1, 100, 99) == 100);
  CHECK(next_evaluation(1, 100, 100) == 200);
  CHECK(next_evaluation(1, 100, 101) == 200);
  CHECK(next_evaluation(2.5, 100, 0) == 250);
  CHECK(next_evaluation(2.5, 100, 250) == 500);
  CHECK(next_evaluation(0.5, 101, 0) == 51);
  CHECK(next_evaluation(0.5, 101, 51) == 101);
  CHECK(next_evaluation(0, 100, 5) == kNever);
}

TEST_CASE("an evaluation is due where the last step passed its period, in steps or in epochs, and never at the start") {
  const DataPlan plan{.samples_per_epoch = 100, .global_batch = 30};
  const auto due_steps = [&](const Config::Eval& eval) {
    std::vector<int64_t> steps;
    for (int64_t step = 0; step <= 10; ++step) {
      if (evaluation_due_at(eval, plan, {.step = step, .position = 30 * step})) steps.push_back(step);
    }
    return steps;
  };
  CHECK(due_steps({.every_epochs = 1}) == std::vector<int64_t>{4, 7, 10});
  CHECK(due_steps({.every_epochs = 0.6}) == std::vector<int64_t>{2, 4, 6, 8, 10});
  CHECK(due_steps({.every_epochs = 1, .every_steps = 4}) == std::vector<int64_t>{4, 8});
  CHECK(due_steps({.every_epochs = 0}).empty());
}

TEST_CASE("fractional periods neither skip nor repeat an evaluation") {
  for (const double every : {0.1, 0.3, 0.7, 1.1, 1.0 / 3}) {
    for (const int64_t samples : {10, 97, 1437}) {
      int64_t position = 0;
      for (int64_t k = 1; k <= 200; ++k) {
        const int64_t next = next_evaluation(every, samples, position);
        if (next - position > 1) CHECK(next_evaluation(every, samples, next - 1) == next);
        CHECK(next > position);
        CHECK(static_cast<double>(next) ==
              Approx(static_cast<double>(k) * every * static_cast<double>(samples)).margin(1));
        position = next;
      }
    }
  }
  CHECK(next_evaluation(1e-6, 10, 7) == 8);  // less than a sample: after each
}
