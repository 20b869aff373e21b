#include "lockstep/train/trainer.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/checkpoint/run_directory.h"
#include "test/catch.h"
#include "test/train/job.h"
#include "test/train/json_rows.h"
#include "test/train/log_capture.h"
#include "test/train/plain_source.h"

using namespace lockstep;
using testing::world;

TEST_CASE("a run of one and a half epochs makes whole steps, reports each interval and saves the last state") {
  const SharedDirectory directory;
  const PlainSource data(30);
  Config config = config_in(directory);
  config.train.epochs = 1.5;
  config.log.every_steps = 5;
  Job job(config, data);
  const int64_t steps = (45 + job.global_batch() - 1) / job.global_batch();
  CHECK(job.trainer->total_steps() == steps);
  CHECK(job.trainer->run() == RunEnd::finished);
  CHECK(job.trainer->progress().step == steps);
  CHECK(job.trainer->progress().position == steps * job.global_batch());
  CHECK(job.trainer->progress().updates == steps);
  if (!world().is_root()) return;
  std::vector<int64_t> expected;
  for (int64_t step = 5; step < steps; step += 5) expected.push_back(step);
  expected.push_back(steps);
  CHECK(field<int64_t>(directory, "train", "step") == expected);
  CHECK(field<double>(directory, "train", "epoch").back() ==
        Approx(static_cast<double>(steps * job.global_batch()) / 30));
  CHECK(std::filesystem::exists(directory / "run/" + checkpoint_name(steps)));
}

TEST_CASE("the time of every step on a device counts, also of those that the end of a run waits for") {
  const SharedDirectory directory;
  const PlainSource data(30);
  Config config = config_in(directory);
  config.device.deferred = true;
  config.train.epochs = 0;
  config.train.steps = 6;
  Job job(config, data);
  const double begin = monotonic_seconds();
  job.trainer->run();
  const double elapsed = monotonic_seconds() - begin;
  if (!world().is_root()) return;
  const auto seconds = field<double>(directory, "train", "seconds_per_step");
  REQUIRE(seconds.size() == 6);
  CHECK(std::ranges::min(seconds) > 0);
  CHECK(std::reduce(seconds.begin(), seconds.end()) <= elapsed);
}

TEST_CASE("training learns, the same on all ranks") {
  const SharedDirectory directory;
  const PlainSource data(12);
  Config config = config_in(directory);
  config.train.epochs = 0;
  config.train.steps = 60;
  config.train.audit_every = 10;
  config.optimizer = {.name = "adamw", .lr = 1e-3, .epsilon = 1e-8};
  Job job(config, data);
  job.trainer->run();
  if (!world().is_root()) return;
  const auto losses = field<double>(directory, "train", "loss");
  CHECK(losses.back() < 0.7 * losses.front());
}

TEST_CASE("data of any number of samples are trained and evaluated to the end by all ranks") {
  const SharedDirectory directory;
  Config config = config_in(directory);
  config.train.epochs = 1.5;
  config.ema.decay = 0;
  for (int64_t samples = 1; samples <= 40; samples += samples < 14 ? 1 : 3) {
    INFO(samples << " samples");
    config.checkpoint.directory = directory / "run" + std::to_string(samples);
    const PlainSource data(samples), validation(41 - samples);
    Job job(config, data, &validation);
    REQUIRE(job.trainer->run() == RunEnd::finished);
    const int64_t seen = (3 * samples + 1) / 2;
    CHECK(job.trainer->progress().step == (seen + job.global_batch() - 1) / job.global_batch());
    if (!world().is_root()) continue;
    for (const auto& row : json_rows(config.checkpoint.directory + "/metrics.jsonl", "eval")) {
      CHECK(row["examples"] == validation.size());
    }
  }
}

TEST_CASE("evaluation happens at each multiple of its period, and once at the end") {
  const SharedDirectory directory;
  const int64_t batch = 4 * world().size();
  const PlainSource data(2 * batch), validation(5);
  Config config = config_in(directory);
  config.train.epochs = 2.5;
  config.ema.decay = 0;
  SECTION("of one epoch") {
    Job(config, data, &validation).trainer->run();
    if (world().is_root()) CHECK(field<int64_t>(directory, "eval", "step") == std::vector<int64_t>{2, 4, 5});
  }
  SECTION("of half an epoch, the last at the end") {
    config.eval.every_epochs = 0.5;
    Job(config, data, &validation).trainer->run();
    if (world().is_root()) CHECK(field<int64_t>(directory, "eval", "step") == std::vector<int64_t>{1, 2, 3, 4, 5});
  }
  SECTION("of three steps") {
    config.eval.every_steps = 3;
    Job(config, data, &validation).trainer->run();
    if (world().is_root()) CHECK(field<int64_t>(directory, "eval", "step") == std::vector<int64_t>{3, 5});
  }
  SECTION("of none but the end, with averages beside the weights") {
    config.eval.every_epochs = 0;
    config.ema.decay = 0.9;
    Job(config, data, &validation).trainer->run();
    if (world().is_root()) {
      CHECK(field<int64_t>(directory, "eval", "step") == std::vector<int64_t>{5, 5});
      CHECK(field<int64_t>(directory, "eval", "examples") == std::vector<int64_t>{5, 5});
      CHECK(field<std::string>(directory, "eval", "weights") == std::vector<std::string>{"raw", "ema"});
    }
  }
}

TEST_CASE("a run that is stopped and resumed ends with the same bits as one that is not") {
  const SharedDirectory whole, parts;
  const PlainSource data(23);
  const int64_t accumulate = GENERATE(1, 2);
  const auto config = [&](const SharedDirectory& directory) {
    Config c = config_in(directory);
    c.train.epochs = 1.5 * static_cast<double>(accumulate);
    c.train.batch_size = 4 / accumulate;
    c.train.accumulate = accumulate;
    c.model.dropout = 0.2;
    c.schedule = {.name = ScheduleKind::cosine, .warmup_epochs = 0.3};
    return c;
  };
  Job uninterrupted(config(whole), data);
  uninterrupted.trainer->run();
  int stops = 0;
  for (;; ++stops) {
    Job job(config(parts), data);
    CHECK(job.trainer->total_steps() == uninterrupted.trainer->total_steps());
    job.stop = stops < 2 && world().rank() == world().size() - 1;  // a request on one rank stops all
    if (job.trainer->run() == RunEnd::finished) {
      CHECK(job.run.values() == uninterrupted.run.values());
      break;
    }
    CHECK(job.trainer->progress().step == stops + 1);
  }
  CHECK(stops == 2);
  if (!world().is_root()) return;
  for (const char* name : {"step", "lr", "loss"}) {
    CHECK(field<double>(whole, "train", name) == field<double>(parts, "train", name));
  }
}

TEST_CASE("the best state by top-1 is kept beside the newest, and a resumed run knows how good it was") {
  const SharedDirectory directory;
  const PlainSource data(24), validation(9);
  Config config = config_in(directory);
  config.ema.decay = 0;
  config.optimizer.lr = 0.05;
  config.train.epochs = 0;
  config.train.steps = 12;
  config.eval.every_steps = 1;
  config.checkpoint.keep = 1;
  config.checkpoint.keep_best = true;
  {
    Job first(config, data, &validation);
    first.stop = true;  // after its first step
    CHECK(first.trainer->run() == RunEnd::stopped);
  }
  world().barrier({"the first part"});
  Job job(config, data, &validation);
  CHECK(job.trainer->run() == RunEnd::finished);
  world().barrier({"the run"});
  const Job again(config, data, &validation);
  if (!world().is_root()) return;
  const auto steps = field<int64_t>(directory, "eval", "step");
  const auto top1 = field<double>(directory, "eval", "top1");
  const auto best = std::ranges::max_element(top1);  // the first of equals
  CHECK(job.checkpointer.best().score == *best);
  CHECK(again.start.progress.best.score == *best);
  const std::string name = checkpoint_name(steps[static_cast<size_t>(best - top1.begin())]);
  CHECK(std::filesystem::read_symlink(directory / "run/best") == name);
  CHECK(std::filesystem::read_symlink(directory / "run/latest") == checkpoint_name(12));
  // The best may be the one of the first part, which was saved before its evaluation.
  const auto training = CheckpointReader::open(directory / "run/latest").training();
  CHECK(std::get<double>(training.at("best_score")) == *best);
  CHECK(find_checkpoints(directory / "run").size() == (name == checkpoint_name(12) ? 1 : 2));
}

TEST_CASE("the last state is marked as the best although the one before is still being saved") {
  const SharedDirectory directory;
  const PlainSource data(64), validation(9);
  Config config = config_in(directory);
  config.ema.decay = 0;
  config.train.epochs = 0;
  config.train.steps = 6;
  config.eval.every_steps = GENERATE(0, 6);  // at the end; as any other
  config.eval.every_epochs = 0;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep_best = true;
  CHECK(Job(config, data, &validation).trainer->run() == RunEnd::finished);
  if (!world().is_root()) return;
  CHECK(std::filesystem::read_symlink(directory / "run/best") == checkpoint_name(6));
  const auto training = CheckpointReader::open(directory / "run/best").training();
  CHECK(std::get<double>(training.at("best_score")) == field<double>(directory, "eval", "top1").back());
}

TEST_CASE("a run that stops where it was to evaluate does so when it goes on, and keeps one row of each evaluation") {
  const SharedDirectory directory;
  const PlainSource data(64), validation(9);
  Config config = config_in(directory);
  config.ema.decay = 0;
  config.train.epochs = 0;
  config.train.steps = 5;
  config.eval.every_steps = 2;
  const auto run_to = [&](int64_t step) {
    Job job(config, data, &validation);
    job.communicator.before_sum = [&](std::string_view label, std::span<float>) {
      // A step carries a stop request only if it came before the all-reduce of the step.
      if (label.starts_with(fmt::format("step {} bucket 1 ", step - 1))) job.stop = true;
    };
    CHECK(job.trainer->run() == (step < 5 ? RunEnd::stopped : RunEnd::finished));
    CHECK(job.trainer->progress().step == step);
    world().barrier({"a part of the run"});
  };
  const auto evaluated = [&] { return field<int64_t>(directory, "eval", "step"); };
  run_to(2);
  if (world().is_root()) CHECK(evaluated().empty());
  run_to(4);
  if (world().is_root()) CHECK(evaluated() == std::vector<int64_t>{2});
  run_to(5);
  if (world().is_root()) {
    CHECK(evaluated() == std::vector<int64_t>{2, 4, 5});
    std::filesystem::remove(directory / "run/" + checkpoint_name(5));  // as if it had been killed before that
  }
  world().barrier({"the kill"});
  run_to(5);
  if (world().is_root()) CHECK(evaluated() == std::vector<int64_t>{2, 4, 5});
}

TEST_CASE("a finished run evaluates once more and writes nothing") {
  const SharedDirectory directory;
  const PlainSource data(16), validation(5);
  Config config = config_in(directory);
  config.ema.decay = 0;
  Job(config, data, &validation).trainer->run();
  world().barrier({"the first run"});
  Job again(config, data, &validation);
  const Progress before = again.start.progress;
  const LogCapture log;
  CHECK(again.trainer->run() == RunEnd::finished);
  CHECK(again.trainer->progress().step == before.step);
  if (!world().is_root()) return;
  CHECK_THAT(log.text(), ContainsSubstring(fmt::format("evaluation at step {} ", before.step)));
  CHECK(field<int64_t>(directory, "eval", "step") == std::vector<int64_t>{before.step});
  CHECK(field<int64_t>(directory, "checkpoint", "step") == std::vector<int64_t>{before.step});
}

TEST_CASE("with another global batch the samples and the schedule's epochs go on") {
  const SharedDirectory directory;
  const int64_t batch = 4 * world().size();
  const PlainSource data(2 * batch);
  Config config = config_in(directory);
  config.optimizer.lr = 0.001;
  config.schedule = {.name = ScheduleKind::exponential, .decay_rate = 0.5, .decay_epochs = 1};
  config.train.epochs = 1;
  Job(config, data).trainer->run();
  world().barrier({"the first run"});
  config.train.batch_size = 2;
  config.train.epochs = 2;
  Job half(config, data);
  CHECK(half.start.progress.position == 2 * batch);
  CHECK(half.trainer->total_steps() == 2 + 4);
  half.trainer->run();
  CHECK(half.trainer->progress().position == 4 * batch);
  if (!world().is_root()) return;
  CHECK(field<double>(directory, "train", "lr") == std::vector<double>{1e-3, 1e-3, 5e-4, 5e-4, 5e-4, 5e-4});
  CHECK(field<double>(directory, "train", "epoch") == std::vector<double>{0.5, 1, 1.25, 1.5, 1.75, 2});
}

TEST_CASE("records that were skipped are reported at the end, of training and of evaluation, and no step is short") {
  const SharedDirectory directory;
  const PlainSource data(16, {3, 7}), validation(9, {8});
  Config config = config_in(directory);
  config.data.bad_records = BadRecordRule::skip;
  config.train.epochs = 2;
  const LogCapture log;
  Job job(config, data, &validation);
  CHECK(job.trainer->run() == RunEnd::finished);
  CHECK(job.trainer->progress().position == (32 + job.global_batch() - 1) / job.global_batch() * job.global_batch());
  if (!world().is_root()) return;
  const auto rows = json_rows(directory / "run/metrics.jsonl", "event");
  REQUIRE(rows.size() == 2);
  CHECK_THAT(rows[0]["text"].get<std::string>(), ContainsSubstring("bad records of data.train skipped: 2, met "));
  CHECK(rows[0]["records"][0]["index"] == 3);
  CHECK(rows[0]["records"][0]["message"] == "record 3: torn");
  CHECK(rows[0]["records"][0]["times"] >= 2);
  CHECK(rows[0]["records"][1]["index"] == 7);
  CHECK_THAT(rows[1]["text"].get<std::string>(), ContainsSubstring("bad records of data.validation skipped: 1, met "));
  CHECK(rows[1]["records"][0]["index"] == 8);
  CHECK_THAT(log.text(), ContainsSubstring("bad records of data.train skipped: 2"));
  CHECK(field<int64_t>(directory, "eval", "examples").back() == 8);
}

TEST_CASE("without skipping there is no such report") {
  const SharedDirectory directory;
  const PlainSource data(16);
  Job(config_in(directory), data).trainer->run();
  if (world().is_root()) CHECK(json_rows(directory / "run/metrics.jsonl", "event").empty());
}

TEST_CASE("ranks whose weights have drifted apart are found at the next audit") {
  if (world().size() == 1) return;
  const SharedDirectory directory;
  const PlainSource data(64);
  Config config = config_in(directory);
  config.train.audit_every = 2;
  Job job(config, data);
  if (world().rank() == world().size() - 1) job.run.model.parameter(2)[5] += 0.01F;
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::internal);
  CHECK(job.trainer->progress().step == 2);
}

TEST_CASE("a save that fails is in the metrics, and so is the one that ends the run") {
  const SharedDirectory directory;
  const PlainSource data(64);
  Config config = config_in(directory);
  config.train.epochs = 0;
  config.train.steps = 5;
  config.checkpoint.every_steps = 2;
  const bool strict = GENERATE(false, true);
  config.checkpoint.on_error = strict ? SaveErrorRule::fail : SaveErrorRule::warn;
  Job job(config, data);
  if (world().is_root()) std::filesystem::create_directories(directory / "run/" + checkpoint_name(2) + "/in the way");
  world().barrier({"the directory in the way"});
  // Rank 0 alone knows, and would end the job: here it must not leave the others behind in a reduction.
  if (strict && world().size() > 1) return;
  const LogCapture log;
  const auto error = error_of([&] { job.trainer->run(); });
  CHECK(error.has_value() == strict);
  if (!world().is_root()) return;
  const auto rows = json_rows(directory / "run/metrics.jsonl", "event");
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["event"] == "save failed");
  CHECK(rows[0]["step"] == 2);
  CHECK_THAT(rows[0]["text"].get<std::string>(), ContainsSubstring(checkpoint_name(2)));
}

TEST_CASE("a run saves every so many steps and at its end, each step once") {
  const SharedDirectory directory;
  const int64_t batch = 4 * world().size();
  const PlainSource data(batch);
  Config config = config_in(directory);
  config.train.epochs = 0;
  config.train.steps = 7;
  config.checkpoint.every_steps = 7;
  Job(config, data).trainer->run();
  if (!world().is_root()) return;
  CHECK(field<int64_t>(directory, "checkpoint", "step") == std::vector<int64_t>{7});
}

TEST_CASE("with the host two steps ahead a stop request takes effect two steps later, and the run goes on from there") {
  const PlainSource data(64);
  const SharedDirectory whole, parts;
  const auto config = [](const SharedDirectory& directory) {
    Config c = config_in(directory);
    c.device.deferred = true;
    c.train.epochs = 0;
    c.train.steps = 7;
    return c;
  };
  Job uninterrupted(config(whole), data);
  uninterrupted.trainer->run();
  {
    Job job(config(parts), data);
    job.stop = world().rank() == world().size() - 1;
    CHECK(job.trainer->run() == RunEnd::stopped);
    CHECK(job.trainer->progress().step == 3);
    CHECK(job.trainer->progress().updates == 3);
  }
  Job job(config(parts), data);
  CHECK(job.start.progress.step == 3);
  CHECK(job.trainer->run() == RunEnd::finished);
  CHECK(job.run.values() == uninterrupted.run.values());
}
