#include "lockstep/train/non_finite_steps.h"

#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/checkpoint/run_directory.h"
#include "test/catch.h"
#include "test/train/job.h"
#include "test/train/json_rows.h"
#include "test/train/log_capture.h"
#include "test/train/plain_source.h"
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
  explicit Rule(NonFiniteRule rule, Precision precision = Precision::float32)
      : steps(world(), run.model, {.precision = precision, .not_finite = rule}) {}
  SmallRun run{small_config()};
  NonFiniteSteps steps;
};

// A weight of the last layer is lost.
void put_nan(const SmallRun& run) {
  run.model.parameter(run.model.parameters().find("fc5.bias"))[1] = std::numeric_limits<float>::quiet_NaN();
}

// A writer must also have finished with a published file before the next save can start.
void wait_for_file(const std::string& path) {
  const double deadline = monotonic_seconds() + 20;
  while (!std::filesystem::exists(path) && monotonic_seconds() < deadline) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

}  // namespace

TEST_CASE("the rule stop ends all ranks alike at the first such step and names the rank") {
  Rule rule(NonFiniteRule::stop);
  const auto error = agreed_error_of([&] { rule.steps.skip(7, infinite_loss()); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(),
             ContainsSubstring("step 7: the loss is not finite on " + world().describe(world().size() - 1) + ";"));
}

TEST_CASE("gradients that overflow float16 step after step are warned of once, and end with advice of their own") {
  Rule rule(NonFiniteRule::stop, Precision::fp16);
  for (int round = 0; round < 2; ++round) {
    for (int step = 1; step < 8; ++step) CHECK(rule.steps.overflowed(1024).empty());
    if (round == 0) rule.steps.applied();
  }
  CHECK_THAT(rule.steps.overflowed(64), ContainsSubstring("in 8 steps in a row") && ContainsSubstring("is now 64"));
  CHECK(rule.steps.overflowed(32).empty());
  StepOutcome outcome;
  outcome.bad_gradient = 0;
  const auto error = agreed_error_of([&] { rule.steps.skip(15, outcome); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring(" is not finite in float16, even with a loss scale of 1;") &&
                                ContainsSubstring("Set train.precision = \"bf16\""));
  const auto other = agreed_error_of([&] { rule.steps.skip(15, infinite_loss()); });
  REQUIRE(other);
  CHECK_THAT(other->what(), ContainsSubstring("Lower optimizer.lr"));
}

TEST_CASE("overflows are counted from zero after a return to a checkpoint, which the last error counts") {
  Rule rule(NonFiniteRule::rollback, Precision::fp16);
  for (int round = 0; round < 3; ++round) {
    for (int step = 1; step < 8; ++step) CHECK(rule.steps.overflowed(1024).empty());
    rule.steps.went_back(7, "a checkpoint");
  }
  CHECK_FALSE(rule.steps.skip(1, infinite_loss()));
  CHECK_FALSE(rule.steps.skip(2, infinite_loss()));
  const auto error = agreed_error_of([&] { rule.steps.skip(3, infinite_loss()); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring(", again after 3 returns to a checkpoint;"));
}

TEST_CASE("the rule skip allows ten such steps in a row, counted again from one that was applied") {
  Rule rule(NonFiniteRule::skip);
  for (int round = 0; round < 2; ++round) {
    for (int step = 1; step <= 10; ++step) CHECK_FALSE(rule.steps.skip(step, infinite_loss()));
    if (round == 0) rule.steps.applied();
  }
  CHECK(agreed_error_of([&] { rule.steps.skip(11, infinite_loss()); }));
}

TEST_CASE("the rule rollback goes back at the third such step in a row, three times") {
  Rule rule(NonFiniteRule::rollback);
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
  Rule rule(NonFiniteRule::skip);
  StepOutcome outcome;
  outcome.own_loss = 1;
  outcome.bad_gradient = 0;
  rule.steps.skip(2, outcome);
  CHECK_THAT(rule.steps.where(), ContainsSubstring("step 2: the gradient of "));
  CHECK_THAT(rule.steps.where(), ContainsSubstring(" is not finite"));
}

TEST_CASE("a loss that is not finite stops all ranks and names where it is") {
  const SharedDirectory directory;
  const PlainSource data(64);
  Job job(config_in(directory), data);
  const bool last = world().rank() == world().size() - 1;
  if (last) put_nan(job.run);
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(),
             ContainsSubstring("step 1: the loss is not finite on " + world().describe(world().size() - 1)));
  CHECK(job.trainer->progress().step == 0);
}

TEST_CASE("steps that are not finite are skipped ten times in a row at most, and change nothing") {
  const SharedDirectory directory;
  const PlainSource data(64);
  Config config = config_in(directory);
  config.train.epochs = 0;
  config.train.steps = 100;
  config.train.not_finite = NonFiniteRule::skip;
  Job job(config, data);
  put_nan(job.run);
  const auto before = job.run.values();
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(), ContainsSubstring("step 11: "));
  CHECK(job.trainer->progress().step == 10);
  CHECK(job.trainer->progress().updates == 0);
  CHECK(job.trainer->progress().position == 10 * job.global_batch());
  const auto after = job.run.values();
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].first != "/model/fc5.bias") CHECK(after[i] == before[i]);  // that holds the NaN, unequal to itself
  }
  if (!world().is_root()) return;
  CHECK(json_rows(directory / "run/metrics.jsonl", "event").size() == 10);
}

// A run of twelve steps with a checkpoint every four. On the last rank a gradient of steps 6, 7 and 8 is NaN, the first
// `times` times they are made.
Config config_with_rollback(const SharedDirectory& directory) {
  Config config = config_in(directory);
  config.train.epochs = 0;
  config.train.steps = 12;
  config.train.not_finite = NonFiniteRule::rollback;
  config.checkpoint.every_steps = 4;
  config.optimizer.momentum = 0.9;
  return config;
}

void spoil_steps_6_to_8(Job& job, int times) {
  if (world().rank() != world().size() - 1) return;
  job.communicator.before_sum = [times, seen = 0](std::string_view label, std::span<float> values) mutable {
    for (const char* step : {"step 6 bucket 1 ", "step 7 bucket 1 ", "step 8 bucket 1 "}) {
      if (label.starts_with(step) && seen++ < 3 * times) values[0] = std::numeric_limits<float>::quiet_NaN();
    }
  };
}

TEST_CASE(
    "after three steps in a row that are not finite a run goes back to its checkpoint, and ends as if nothing was") {
  const SharedDirectory directory, undisturbed;
  const PlainSource data(64);
  Job healthy(config_with_rollback(undisturbed), data);
  healthy.trainer->run();
  Job job(config_with_rollback(directory), data);
  spoil_steps_6_to_8(job, 1);
  const LogCapture log;
  CHECK(job.trainer->run() == RunEnd::finished);
  CHECK(job.trainer->progress().step == 12);
  CHECK(job.trainer->progress().updates == 12);
  CHECK(job.run.values() == healthy.run.values());
  if (!world().is_root()) return;
  CHECK_THAT(log.text(), ContainsSubstring("back from step 8 to " + (directory / "run/" + checkpoint_name(4))));
  CHECK(field<int64_t>(directory, "train", "step") == field<int64_t>(undisturbed, "train", "step"));
  CHECK(field<double>(directory, "train", "loss") == field<double>(undisturbed, "train", "loss"));
  CHECK(field<int64_t>(directory, "event", "step") == std::vector<int64_t>{4});
}

TEST_CASE("a run that goes back past a damaged file writes it again") {
  const SharedDirectory directory;
  const PlainSource data(64);
  Job job(config_with_rollback(directory), data);
  const std::string damaged = directory / "run/" + checkpoint_name(8);
  job.communicator.before_sum = [&, seen = 0](std::string_view label, std::span<float> values) mutable {
    // A save that is due while the one before is being written would be skipped. That ends soon after its link is made.
    if (label.starts_with("step 6 bucket 1 ")) {
      wait_for_file(directory / "run/latest");
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    for (const char* step : {"step 9 bucket 1 ", "step 10 bucket 1 ", "step 11 bucket 1 "}) {
      if (!label.starts_with(step) || seen++ >= 3) continue;
      values[0] = std::numeric_limits<float>::quiet_NaN();
      if (!world().is_root() || seen < 3) continue;
      wait_for_file(damaged);
      std::filesystem::resize_file(damaged, 1000);
    }
  };
  const LogCapture log;
  CHECK(job.trainer->run() == RunEnd::finished);
  if (!world().is_root()) return;
  CHECK_THAT(log.text(), ContainsSubstring(damaged + ": truncated checkpoint") &&
                             ContainsSubstring("back from step 11 to " + (directory / "run/" + checkpoint_name(4))));
  CHECK(CheckpointReader::open(damaged).meta().step == 8);
  CHECK(field<int64_t>(directory, "checkpoint", "step") == std::vector<int64_t>{4, 8, 12});
}

TEST_CASE("a run goes back three times at most") {
  const SharedDirectory directory;
  const PlainSource data(64);
  Job job(config_with_rollback(directory), data);
  spoil_steps_6_to_8(job, 100);
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(), ContainsSubstring("step 8: the gradient of ") &&
                                ContainsSubstring("again after 3 returns to a checkpoint"));
}

TEST_CASE("without a checkpoint to go back to the run ends") {
  const SharedDirectory directory;
  const PlainSource data(64);
  Job job(config_with_rollback(directory), data);
  put_nan(job.run);
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(), ContainsSubstring("there is no checkpoint in "));
}

TEST_CASE("with the host two steps ahead a loss that is not finite leaves the weights of the step before") {
  const SharedDirectory directory;
  const PlainSource data(64);
  Config config = config_in(directory);
  config.device.deferred = true;
  Job job(config, data);
  if (world().rank() == 0) put_nan(job.run);
  const auto before = job.run.values();
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(), ContainsSubstring("step 1: the loss is not finite on " + world().describe(0)));
  CHECK(job.trainer->progress().updates == 0);
  const auto after = job.run.values();
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].first != "/model/fc5.bias") CHECK(after[i] == before[i]);
  }
}

TEST_CASE("with the host two steps ahead the gradient that is not finite is named, though others came after it") {
  const SharedDirectory directory;
  const PlainSource data(64);
  Config config = config_in(directory);
  config.device.deferred = true;
  config.device.graph = GraphCapture::off;  // where a step is captured the values are not there yet
  Job job(config, data);
  const ParameterId id = job.run.model.parameters().find("conv2.bias");
  const int64_t place = job.run.model.layout().offset[static_cast<size_t>(id)];
  const float* gradients = job.run.model.state().gradients.as<float>();
  job.communicator.before_sum = [&](std::string_view label, std::span<float> values) {
    if (!label.starts_with("step 3 ") || world().rank() != 0) return;
    const int64_t first = values.data() - gradients;
    if (first > place || place >= first + static_cast<int64_t>(values.size())) return;
    job.run.stream->wait();
    values[static_cast<size_t>(place - first)] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("step 3: the gradient of conv2.bias is not finite"));
  CHECK(job.trainer->progress().step == 2);
}

TEST_CASE("with the host two steps ahead steps that are not finite are skipped on the device, each counted once") {
  const SharedDirectory directory;
  const PlainSource data(64);
  Config config = config_in(directory);
  config.device.deferred = true;
  config.train.epochs = 0;
  config.train.steps = 100;
  config.train.not_finite = NonFiniteRule::skip;
  Job job(config, data);
  put_nan(job.run);
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("step 11: "));
  CHECK(job.trainer->progress().step == 10);
  CHECK(job.trainer->progress().updates == 0);
  if (world().is_root()) CHECK(json_rows(directory / "run/metrics.jsonl", "event").size() == 10);
}
