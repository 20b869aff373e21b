#include "lockstep/train/trainer.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/checkpoint/folder.h"
#include "test/catch.h"
#include "test/train/job.h"
#include "test/train/json_rows.h"
#include "test/train/log_capture.h"
#include "test/train/plain_source.h"

using namespace lockstep;
using testing::world;

namespace {

// A weight of the last layer is lost.
void put_nan(const SmallRun& run) {
  run.program.parameter(run.program.parameters().find("fc5.bias"))[1] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

TEST_CASE("a run of one and a half epochs makes whole steps, reports each interval and saves the last state") {
  const SharedFolder folder;
  const PlainSource data(30);
  Config config = config_in(folder);
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
  CHECK(field<int64_t>(folder, "train", "step") == expected);
  CHECK(field<double>(folder, "train", "epoch").back() == Approx(static_cast<double>(steps * job.global_batch()) / 30));
  CHECK(std::filesystem::exists(folder / "run/" + checkpoint_name(steps)));
}

TEST_CASE("training learns, the same on all ranks") {
  const SharedFolder folder;
  const PlainSource data(12);
  Config config = config_in(folder);
  config.train.epochs = 0;
  config.train.steps = 60;
  config.train.audit_every = 10;
  config.optimizer = {.name = "adamw", .lr = 1e-3, .epsilon = 1e-8};
  Job job(config, data);
  job.trainer->run();
  if (!world().is_root()) return;
  const auto losses = field<double>(folder, "train", "loss");
  CHECK(losses.back() < 0.7 * losses.front());
}

TEST_CASE("data of any number of samples are trained and evaluated to the end by all ranks") {
  const SharedFolder folder;
  Config config = config_in(folder);
  config.train.epochs = 1.5;
  config.ema.decay = 0;
  for (int64_t samples = 1; samples <= 40; samples += samples < 14 ? 1 : 3) {
    INFO(samples << " samples");
    config.checkpoint.directory = folder / "run" + std::to_string(samples);
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

TEST_CASE("with gradients of 16 bits on the wire training learns as with 32, the same on all ranks") {
  const PlainSource data(12);
  const auto losses_with = [&](const std::string& wire, bool deferred) {
    const SharedFolder folder;
    Config config = config_in(folder);
    config.train.epochs = 0;
    config.train.steps = 60;
    config.train.audit_every = 10;
    config.comm.gradient_dtype = wire;
    config.comm.bucket_mb = 0.01;
    config.device.deferred = deferred;
    config.optimizer = {.name = "adamw", .lr = 1e-3, .epsilon = 1e-8};
    Job job(config, data);
    job.trainer->run();
    return world().is_root() ? field<double>(folder, "train", "loss") : std::vector<double>();
  };
  const auto plain = losses_with("float32", false);
  for (const char* wire : {"bf16", "fp16"}) {
    INFO(wire);
    const auto losses = losses_with(wire, false);
    CHECK(losses_with(wire, true) == losses);  // on a device, through host memory
    if (!world().is_root()) continue;
    CHECK(losses.back() < 0.75 * losses.front());
    for (size_t i = 0; i < 5; ++i) CHECK(losses[i] == Approx(plain[i]).epsilon(0.02));
    CHECK((losses == plain) == (world().size() == 1));
  }
}

TEST_CASE("evaluation happens at each multiple of its period, and once at the end") {
  const SharedFolder folder;
  const int64_t batch = 4 * world().size();
  const PlainSource data(2 * batch), validation(5);
  Config config = config_in(folder);
  config.train.epochs = 2.5;
  config.ema.decay = 0;
  SECTION("of one epoch") {
    Job(config, data, &validation).trainer->run();
    if (world().is_root()) CHECK(field<int64_t>(folder, "eval", "step") == std::vector<int64_t>{2, 4, 5});
  }
  SECTION("of half an epoch, the last at the end") {
    config.eval.every_epochs = 0.5;
    Job(config, data, &validation).trainer->run();
    if (world().is_root()) CHECK(field<int64_t>(folder, "eval", "step") == std::vector<int64_t>{1, 2, 3, 4, 5});
  }
  SECTION("of three steps") {
    config.eval.every_steps = 3;
    Job(config, data, &validation).trainer->run();
    if (world().is_root()) CHECK(field<int64_t>(folder, "eval", "step") == std::vector<int64_t>{3, 5});
  }
  SECTION("of none but the end, with averages beside the weights") {
    config.eval.every_epochs = 0;
    config.ema.decay = 0.9;
    Job(config, data, &validation).trainer->run();
    if (world().is_root()) {
      CHECK(field<int64_t>(folder, "eval", "step") == std::vector<int64_t>{5, 5});
      CHECK(field<int64_t>(folder, "eval", "examples") == std::vector<int64_t>{5, 5});
      CHECK(field<std::string>(folder, "eval", "weights") == std::vector<std::string>{"raw", "ema"});
    }
  }
}

TEST_CASE("a run that is stopped and resumed ends with the same bits as one that is not") {
  const SharedFolder whole, parts;
  const PlainSource data(23);
  const int64_t accumulate = GENERATE(1, 2);
  const auto config = [&](const SharedFolder& folder) {
    Config c = config_in(folder);
    c.train.epochs = 1.5 * static_cast<double>(accumulate);
    c.train.batch_size = 4 / accumulate;
    c.train.accumulate = accumulate;
    c.model.dropout = 0.2;
    c.schedule = {.name = "cosine", .warmup_epochs = 0.3};
    return c;
  };
  Job uninterrupted(config(whole), data);
  uninterrupted.trainer->run();
  int stops = 0;
  for (;; ++stops) {
    Job job(config(parts), data);
    CHECK(job.trainer->total_steps() == uninterrupted.trainer->total_steps());
    job.stop = stops < 2 && world().rank() == world().size() - 1;  // one rank's wish is all ranks' end
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

TEST_CASE("micro-batches that are added up train as one batch does, dropout and clipping included") {
  const PlainSource data(29);
  const auto train = [&](int64_t batch, int64_t accumulate) {
    const SharedFolder folder;
    Config config = config_in(folder);
    config.model.dropout = 0.3;
    config.optimizer.momentum = 0.9;
    config.train.clip_norm = 0.5;
    config.train.batch_size = batch;
    config.train.accumulate = accumulate;
    config.train.epochs = 0;
    config.train.steps = 6;
    config.comm.bucket_mb = 0.05;  // several buckets
    Job job(config, data);
    CHECK(job.trainer->run() == RunEnd::finished);
    CHECK(job.trainer->progress().position == 6 * 4 * world().size());
    return std::pair(job.run.values(), field<double>(folder, "train", "loss"));
  };
  const auto [whole, whole_losses] = train(4, 1);
  for (const int64_t accumulate : {2, 4}) {
    INFO(accumulate << " micro-batches");
    const auto [parts, losses] = train(4 / accumulate, accumulate);
    if (world().is_root()) {  // which writes them: the others may look too early
      REQUIRE(losses.size() == whole_losses.size());
      for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == Approx(whole_losses[i]).epsilon(1e-5));
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      INFO(whole[i].first);
      REQUIRE(parts[i].first == whole[i].first);
      double distance = 0, norm = 0;
      for (size_t k = 0; k < whole[i].second.size(); ++k) {
        const double a = whole[i].second[k], b = parts[i].second[k];
        distance += (a - b) * (a - b);
        norm += a * a;
      }
      CHECK(std::sqrt(distance) <= 1e-5 * std::sqrt(norm) + 1e-12);
    }
  }
}

TEST_CASE("the best state by top-1 is kept beside the newest, and a resumed run knows how good it was") {
  const SharedFolder folder;
  const PlainSource data(24), validation(9);
  Config config = config_in(folder);
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
  CHECK(again.start.progress.best_score == job.trainer->progress().best_score);
  if (!world().is_root()) return;
  const auto steps = field<int64_t>(folder, "eval", "step");
  const auto top1 = field<double>(folder, "eval", "top1");
  const auto best = std::ranges::max_element(top1);  // the first of equals
  CHECK(job.trainer->progress().best_score == *best);
  const std::string name = checkpoint_name(steps[static_cast<size_t>(best - top1.begin())]);
  CHECK(std::filesystem::read_symlink(folder / "run/best") == name);
  CHECK(std::filesystem::read_symlink(folder / "run/latest") == checkpoint_name(12));
  // The best may be the one of the first part, which was saved before its evaluation.
  const auto training = CheckpointReader::open(folder / "run/latest").training();
  CHECK(std::get<double>(training.at("best_score")) == *best);
  CHECK(find_checkpoints(folder / "run").size() == (name == checkpoint_name(12) ? 1 : 2));
}

TEST_CASE("the last state is marked as the best although the one before is still being saved") {
  const SharedFolder folder;
  const PlainSource data(64), validation(9);
  Config config = config_in(folder);
  config.ema.decay = 0;
  config.train.epochs = 0;
  config.train.steps = 6;
  config.eval.every_steps = GENERATE(0, 6);  // at the end; as any other
  config.eval.every_epochs = 0;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep_best = true;
  CHECK(Job(config, data, &validation).trainer->run() == RunEnd::finished);
  if (!world().is_root()) return;
  CHECK(std::filesystem::read_symlink(folder / "run/best") == checkpoint_name(6));
  const auto training = CheckpointReader::open(folder / "run/best").training();
  CHECK(std::get<double>(training.at("best_score")) == field<double>(folder, "eval", "top1").back());
}

TEST_CASE("a run that stops where it was to evaluate does so when it goes on, and keeps one row of each evaluation") {
  const SharedFolder folder;
  const PlainSource data(64), validation(9);
  Config config = config_in(folder);
  config.ema.decay = 0;
  config.train.epochs = 0;
  config.train.steps = 5;
  config.eval.every_steps = 2;
  const auto run_to = [&](int64_t step) {
    Job job(config, data, &validation);
    job.communicator.before_sum = [&](std::string_view label, std::span<float>) {
      // What a step carries of a wish to stop was decided before its sum.
      if (label.starts_with(fmt::format("step {} bucket 1 ", step - 1))) job.stop = true;
    };
    CHECK(job.trainer->run() == (step < 5 ? RunEnd::stopped : RunEnd::finished));
    CHECK(job.trainer->progress().step == step);
    world().barrier({"a part of the run"});
  };
  const auto evaluated = [&] { return field<int64_t>(folder, "eval", "step"); };
  run_to(2);
  if (world().is_root()) CHECK(evaluated().empty());
  run_to(4);
  if (world().is_root()) CHECK(evaluated() == std::vector<int64_t>{2});
  run_to(5);
  if (world().is_root()) {
    CHECK(evaluated() == std::vector<int64_t>{2, 4, 5});
    std::filesystem::remove(folder / "run/" + checkpoint_name(5));  // as if it had been killed before that
  }
  world().barrier({"the kill"});
  run_to(5);
  if (world().is_root()) CHECK(evaluated() == std::vector<int64_t>{2, 4, 5});
}

TEST_CASE("a finished run evaluates once more and writes nothing") {
  const SharedFolder folder;
  const PlainSource data(16), validation(5);
  Config config = config_in(folder);
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
  CHECK(field<int64_t>(folder, "eval", "step") == std::vector<int64_t>{before.step});
  CHECK(field<int64_t>(folder, "checkpoint", "step") == std::vector<int64_t>{before.step});
}

TEST_CASE("with another global batch the samples and the schedule's epochs go on") {
  const SharedFolder folder;
  const int64_t batch = 4 * world().size();
  const PlainSource data(2 * batch);
  Config config = config_in(folder);
  config.optimizer.lr = 0.001;
  config.schedule = {.name = "exponential", .decay_rate = 0.5, .decay_epochs = 1};
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
  CHECK(field<double>(folder, "train", "lr") == std::vector<double>{1e-3, 1e-3, 5e-4, 5e-4, 5e-4, 5e-4});
  CHECK(field<double>(folder, "train", "epoch") == std::vector<double>{0.5, 1, 1.25, 1.5, 1.75, 2});
}

TEST_CASE("records that were skipped are reported at the end, of training and of evaluation, and no step is short") {
  const SharedFolder folder;
  const PlainSource data(16, {3, 7}), validation(9, {8});
  Config config = config_in(folder);
  config.data.bad_records = "skip";
  config.train.epochs = 2;
  const LogCapture log;
  Job job(config, data, &validation);
  CHECK(job.trainer->run() == RunEnd::finished);
  CHECK(job.trainer->progress().position == (32 + job.global_batch() - 1) / job.global_batch() * job.global_batch());
  if (!world().is_root()) return;
  const auto rows = json_rows(folder / "run/metrics.jsonl", "event");
  REQUIRE(rows.size() == 2);
  CHECK_THAT(rows[0]["text"].get<std::string>(), ContainsSubstring("bad records of data.train skipped: 2, met "));
  CHECK(rows[0]["records"][0]["index"] == 3);
  CHECK(rows[0]["records"][0]["message"] == "record 3: torn");
  CHECK(rows[0]["records"][0]["times"] >= 2);
  CHECK(rows[0]["records"][1]["index"] == 7);
  CHECK_THAT(rows[1]["text"].get<std::string>(), ContainsSubstring("bad records of data.validation skipped: 1, met "));
  CHECK(rows[1]["records"][0]["index"] == 8);
  CHECK_THAT(log.text(), ContainsSubstring("bad records of data.train skipped: 2"));
  CHECK(field<int64_t>(folder, "eval", "examples").back() == 8);
}

TEST_CASE("without skipping there is no such report") {
  const SharedFolder folder;
  const PlainSource data(16);
  Job(config_in(folder), data).trainer->run();
  if (world().is_root()) CHECK(json_rows(folder / "run/metrics.jsonl", "event").empty());
}

TEST_CASE("a loss that is not finite stops all ranks and names where it is") {
  const SharedFolder folder;
  const PlainSource data(64);
  Job job(config_in(folder), data);
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
  const SharedFolder folder;
  const PlainSource data(64);
  Config config = config_in(folder);
  config.train.epochs = 0;
  config.train.steps = 100;
  config.train.not_finite = "skip";
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
  CHECK(json_rows(folder / "run/metrics.jsonl", "event").size() == 10);
}

// A run of twelve steps with a checkpoint every four. On the last rank a gradient of steps 6, 7 and 8 is NaN, the first
// `times` times they are made.
Config config_with_rollback(const SharedFolder& folder) {
  Config config = config_in(folder);
  config.train.epochs = 0;
  config.train.steps = 12;
  config.train.not_finite = "rollback";
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
  const SharedFolder folder, undisturbed;
  const PlainSource data(64);
  Job healthy(config_with_rollback(undisturbed), data);
  healthy.trainer->run();
  Job job(config_with_rollback(folder), data);
  spoil_steps_6_to_8(job, 1);
  const LogCapture log;
  CHECK(job.trainer->run() == RunEnd::finished);
  CHECK(job.trainer->progress().step == 12);
  CHECK(job.trainer->progress().updates == 12);
  CHECK(job.run.values() == healthy.run.values());
  if (!world().is_root()) return;
  CHECK_THAT(log.text(), ContainsSubstring("back from step 8 to " + (folder / "run/" + checkpoint_name(4))));
  CHECK(field<int64_t>(folder, "train", "step") == field<int64_t>(undisturbed, "train", "step"));
  CHECK(field<double>(folder, "train", "loss") == field<double>(undisturbed, "train", "loss"));
  CHECK(field<int64_t>(folder, "event", "step") == std::vector<int64_t>{4});
}

namespace {

// A writer must also have finished with a published file before the next save can start.
void wait_for_file(const std::string& path) {
  const double deadline = monotonic_seconds() + 20;
  while (!std::filesystem::exists(path) && monotonic_seconds() < deadline) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

}  // namespace

TEST_CASE("a run that goes back past a damaged file writes it anew") {
  const SharedFolder folder;
  const PlainSource data(64);
  Job job(config_with_rollback(folder), data);
  const std::string damaged = folder / "run/" + checkpoint_name(8);
  job.communicator.before_sum = [&, seen = 0](std::string_view label, std::span<float> values) mutable {
    // A save that is due while the one before is being written would be skipped.
    if (label.starts_with("step 6 bucket 1 ")) wait_for_file(folder / "run/" + checkpoint_name(4));
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
                             ContainsSubstring("back from step 11 to " + (folder / "run/" + checkpoint_name(4))));
  CHECK(CheckpointReader::open(damaged).meta().step == 8);
  CHECK(field<int64_t>(folder, "checkpoint", "step") == std::vector<int64_t>{4, 8, 12});
}

TEST_CASE("a run goes back three times at most") {
  const SharedFolder folder;
  const PlainSource data(64);
  Job job(config_with_rollback(folder), data);
  spoil_steps_6_to_8(job, 100);
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(), ContainsSubstring("step 8: the gradient of ") &&
                                ContainsSubstring("again after 3 returns to a checkpoint"));
}

TEST_CASE("without a checkpoint to go back to the run ends") {
  const SharedFolder folder;
  const PlainSource data(64);
  Job job(config_with_rollback(folder), data);
  put_nan(job.run);
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_THAT(error->what(), ContainsSubstring("there is no checkpoint in "));
}

TEST_CASE("ranks whose weights have drifted apart are found at the next audit") {
  if (world().size() == 1) return;
  const SharedFolder folder;
  const PlainSource data(64);
  Config config = config_in(folder);
  config.train.audit_every = 2;
  Job job(config, data);
  if (world().rank() == world().size() - 1) job.run.program.parameter(2)[5] += 0.01F;
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::internal);
  CHECK(job.trainer->progress().step == 2);
}

TEST_CASE("a save that fails is in the metrics, and so is the one that ends the run") {
  const SharedFolder folder;
  const PlainSource data(64);
  Config config = config_in(folder);
  config.train.epochs = 0;
  config.train.steps = 5;
  config.checkpoint.every_steps = 2;
  const bool strict = GENERATE(false, true);
  config.checkpoint.on_error = strict ? "fail" : "warn";
  Job job(config, data);
  if (world().is_root()) std::filesystem::create_directories(folder / "run/" + checkpoint_name(2) + "/in the way");
  world().barrier({"the obstacle"});
  // Rank 0 alone knows, and would end the job: here it must not leave the others behind in a reduction.
  if (strict && world().size() > 1) return;
  const LogCapture log;
  const auto error = error_of([&] { job.trainer->run(); });
  CHECK(error.has_value() == strict);
  if (!world().is_root()) return;
  const auto rows = json_rows(folder / "run/metrics.jsonl", "event");
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["event"] == "save failed");
  CHECK(rows[0]["step"] == 2);
  CHECK_THAT(rows[0]["text"].get<std::string>(), ContainsSubstring(checkpoint_name(2)));
}

TEST_CASE("a run saves every so many steps and at its end, each step once") {
  const SharedFolder folder;
  const int64_t batch = 4 * world().size();
  const PlainSource data(batch);
  Config config = config_in(folder);
  config.train.epochs = 0;
  config.train.steps = 7;
  config.checkpoint.every_steps = 7;
  Job(config, data).trainer->run();
  if (!world().is_root()) return;
  CHECK(field<int64_t>(folder, "checkpoint", "step") == std::vector<int64_t>{7});
}

namespace {

// What a run leaves behind on this rank: every value of its state, and on rank 0 its losses and its files.
struct Traces {
  std::vector<std::pair<std::string, std::vector<float>>> values;
  std::vector<double> losses, evaluations;
  std::vector<int64_t> saved;
};

Traces traces_of(const Config& config, const SharedFolder& folder, const DataSource& data,
                 const DataSource& validation) {
  Job job(config, data, &validation);
  CHECK(job.trainer->run() == RunEnd::finished);
  Traces traces{.values = job.run.values()};
  if (world().is_root()) {
    traces.losses = field<double>(folder, "train", "loss");
    traces.evaluations = field<double>(folder, "eval", "loss");
    traces.saved = field<int64_t>(folder, "checkpoint", "step");
  }
  return traces;
}

}  // namespace

TEST_CASE("a host that is two steps ahead, with the step captured or not, gets the same bits") {
  const PlainSource data(37), validation(9);
  const int64_t accumulate = GENERATE(1, 2, 4);
  const auto run = [&](bool deferred, const std::string& graph) {
    const SharedFolder folder;
    Config config = config_in(folder);
    config.device.deferred = deferred;
    config.device.graph = graph;
    config.model.dropout = 0.3;
    config.train.epochs = 0;
    config.train.steps = 11;
    config.train.accumulate = accumulate;
    config.train.clip_norm = 0.5;
    config.train.audit_every = 4;
    config.schedule = {.name = "cosine", .warmup_epochs = 0.3};
    config.optimizer = {.name = "adamw", .lr = 1e-3, .epsilon = 1e-8};
    config.eval.every_steps = 5;
    config.checkpoint.every_steps = 3;
    return traces_of(config, folder, data, validation);
  };
  const Traces plain = run(false, "auto");
  for (const char* graph : {"off", "auto"}) {
    INFO("device.graph = " << graph);
    const Traces late = run(true, graph);
    CHECK(late.values == plain.values);
    CHECK(late.losses == plain.losses);
    CHECK(late.evaluations == plain.evaluations);
    if (world().is_root()) CHECK(late.saved.back() == 11);
  }
}

TEST_CASE("with the host two steps ahead a wish to stop is met two steps later, and the run goes on from there") {
  const PlainSource data(64);
  const SharedFolder whole, parts;
  const auto config = [](const SharedFolder& folder) {
    Config c = config_in(folder);
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

TEST_CASE("with the host two steps ahead a loss that is not finite leaves the weights of the step before") {
  const SharedFolder folder;
  const PlainSource data(64);
  Config config = config_in(folder);
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
  const SharedFolder folder;
  const PlainSource data(64);
  Config config = config_in(folder);
  config.device.deferred = true;
  config.device.graph = "off";  // where a step is captured the values are not there yet
  Job job(config, data);
  const ParameterId id = job.run.program.parameters().find("conv2.bias");
  const int64_t place = job.run.program.layout().offset[static_cast<size_t>(id)];
  const float* gradients = job.run.program.state().gradients.as<float>();
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
  const SharedFolder folder;
  const PlainSource data(64);
  Config config = config_in(folder);
  config.device.deferred = true;
  config.train.epochs = 0;
  config.train.steps = 100;
  config.train.not_finite = "skip";
  Job job(config, data);
  put_nan(job.run);
  const auto error = agreed_error_of([&] { job.trainer->run(); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("step 11: "));
  CHECK(job.trainer->progress().step == 10);
  CHECK(job.trainer->progress().updates == 0);
  if (world().is_root()) CHECK(json_rows(folder / "run/metrics.jsonl", "event").size() == 10);
}
