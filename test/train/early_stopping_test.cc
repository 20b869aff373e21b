#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/train/trainer.h"
#include "test/catch.h"
#include "test/train/job.h"
#include "test/train/json_rows.h"
#include "test/train/plain_source.h"

using namespace lockstep;
using testing::world;

TEST_CASE("early stopping ends a run that gets no better, when it is resumed as well") {
  const SharedDirectory directory;
  const int64_t batch = 4 * world().size();
  const int64_t rest = GENERATE(0, 1);  // with 1, epochs end within a step
  const PlainSource data(2 * batch + rest), validation(9);
  Config config = config_in(directory);
  config.ema.decay = 0;
  config.optimizer.lr = 1e-9;  // every evaluation is as good as the first one
  config.train.epochs = 9;
  config.eval.patience_epochs = 2;
  config.checkpoint.keep_best = GENERATE(false, true);
  {
    Job first(config, data, &validation);
    first.communicator.before_sum = [&](std::string_view label, std::span<float>) {
      if (label.starts_with(fmt::format("step {} bucket 1 ", 3 + rest))) first.stop = true;
    };
    CHECK(first.trainer->run() == RunEnd::stopped);
    CHECK(first.trainer->progress().step == 4 + rest);
  }
  world().barrier({"the first part"});
  for (const char* time : {"resumed", "and once more"}) {
    INFO(time);
    Job job(config, data, &validation);
    CHECK(job.trainer->run() == RunEnd::finished);
    CHECK(job.trainer->progress().step == 6 + rest);  // two epochs after the first evaluation
    CHECK(job.trainer->progress().best_evaluation.position == (2 + rest) * batch);
    world().barrier({"the run"});
  }
  if (!world().is_root()) return;
  CHECK(field<int64_t>(directory, "eval", "step") == std::vector<int64_t>{2 + rest, 4 + rest, 6 + rest});
  CHECK(std::filesystem::exists(directory / "run/" + checkpoint_name(6 + rest)));
  CHECK(field<std::string>(directory, "event", "event").back() == "early stopping");
}

TEST_CASE("early stopping does not end a run at its best evaluation, however short the patience") {
  const SharedDirectory directory;
  const PlainSource data(8 * world().size()), validation(9);
  Config config = config_in(directory);
  config.ema.decay = 0;
  config.optimizer.lr = 1e-9;
  config.train.epochs = 9;
  config.eval.every_steps = 1;
  config.eval.patience_epochs = 0.25;  // half a step
  Job job(config, data, &validation);
  CHECK(job.trainer->run() == RunEnd::finished);
  CHECK(job.trainer->progress().step == 2);
  CHECK(job.trainer->progress().best_evaluation.position == 4 * world().size());
}
