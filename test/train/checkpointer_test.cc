#include "lockstep/train/checkpointer.h"

#include <ctime>
#include <filesystem>
#include <limits>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/checkpoint/run_directory.h"
#include "test/catch.h"
#include "test/scratch.h"
#include "test/train/log_capture.h"
#include "test/train/small_run.h"

using namespace lockstep;

namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A run with a directory and a checkpointer, its state filled with values.
struct Saving {
  explicit Saving(const std::function<void(Config::Checkpoint&)>& change = {}, CheckpointerOptions options = {}) {
    Config config = small_config(scratch / "run");
    if (change) change(config.checkpoint);
    run.emplace(std::move(config));
    run->fill(0.5F);
    options.global_batch = 8;
    options.samples_per_epoch = 100;
    options.config_text = "text = 1\n";
    options.on_end = [this](const SaveResult& result) { ended.push_back(result); };
    checkpointer.emplace(run->config, run->model, options);
  }
  std::string file(int64_t step) const { return scratch / "run/" + checkpoint_name(step); }
  // Makes saves of this step impossible: something else bears its name.
  void block(int64_t step) const { std::filesystem::create_directories(file(step) + "/in the way"); }
  // Waits for the save in flight; what has ended since the last look.
  std::vector<SaveResult> wait_and_poll() {
    for (; ended.empty(); sleep_ms(1)) checkpointer->poll();
    return std::exchange(ended, {});
  }
  // The steps that the last save, and one in flight, were of.
  std::vector<int64_t> finish(const Progress& progress) {
    checkpointer->finish(progress);
    std::vector<int64_t> steps;
    for (const SaveResult& result : std::exchange(ended, {})) steps.push_back(result.step);
    return steps;
  }

  ScratchDirectory scratch;
  std::vector<SaveResult> ended;
  std::optional<SmallRun> run;
  std::optional<Checkpointer> checkpointer;
};

}  // namespace

TEST_CASE("no save is started that the end of the job would cut off") {
  const JobEnd soon([](const char*) { return std::to_string(std::time(nullptr) + 1); });
  Saving s({}, {.job_end = soon});
  CHECK(s.checkpointer->must_stop(0));
  const LogCapture log;
  s.checkpointer->save({.step = 10});
  CHECK_THAT(log.text(), ContainsSubstring("the checkpoint of step 10 is skipped: the job ends before"));
  s.checkpointer->save_last({.step = 20});
  const auto error = error_of([&] { s.checkpointer->finish({.step = 20}); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  CHECK_THAT(error->what(), ContainsSubstring("step 20 is not saved: the job ends in "));
  CHECK(std::filesystem::is_empty(s.scratch / "run"));
}

TEST_CASE("a run has as much time as its job, or unlimited time") {
  CHECK_FALSE(Saving().checkpointer->must_stop(1e6));
  const JobEnd later([](const char*) { return std::to_string(std::time(nullptr) + 3600); });
  Saving s({}, {.job_end = later});
  CHECK_FALSE(s.checkpointer->must_stop(1));
  CHECK(s.checkpointer->must_stop(3600));
  CHECK(s.finish({.step = 1}) == std::vector<int64_t>{1});
}

TEST_CASE("a checkpoint holds the state, the position, and what made it") {
  Saving s;
  s.checkpointer->finish({.step = 30, .position = 240, .updates = 29});
  const CheckpointReader file = CheckpointReader::open(s.file(30));
  CHECK(file.meta().step == 30);
  CHECK(file.meta().epoch == 2);
  CHECK(file.meta().samples_seen == 240);
  CHECK(file.meta().global_batch == 8);
  CHECK(file.meta().seed == s.run->config.train.seed);
  CHECK(file.meta().model == "cifar10_cnn");
  CHECK(file.config() == "text = 1\n");
  CHECK(std::get<int64_t>(file.training().at("position")) == 240);
  CHECK(std::get<int64_t>(file.training().at("updates")) == 29);
  for (const auto& [path, values] : s.run->values()) {
    std::vector<float> read(values.size());
    file.read(path, read);
    CHECK(read == values);
  }
}

TEST_CASE("a run in half precision saves its loss scale, others have none") {
  Saving full;
  full.checkpointer->finish({.step = 1});
  CHECK(CheckpointReader::open(full.file(1)).training().count("loss_scale") == 0);
  Saving s;
  s.run->config.train.precision = Precision::fp16;
  s.checkpointer->finish({.step = 2, .loss_scale = {.value = 512, .steady_steps = 7}});
  const auto training = CheckpointReader::open(s.file(2)).training();
  CHECK(std::get<double>(training.at("loss_scale")) == 512);
  CHECK(std::get<int64_t>(training.at("loss_scale_steady_steps")) == 7);
}

TEST_CASE("ranks other than 0 save nothing and need no directory") {
  Saving s([](auto& c) { c.every_seconds = 1e-9; }, {.root = false});
  CHECK_FALSE(s.checkpointer->due_by_clock());
  s.checkpointer->save({.step = 1});
  s.checkpointer->save_last({.step = 1});
  s.checkpointer->wait_copied();
  s.checkpointer->poll();
  CHECK(s.finish({.step = 2}).empty());
  CHECK_FALSE(std::filesystem::exists(s.scratch / "run"));
}

TEST_CASE("a save is due when every_seconds have passed since the last one") {
  CHECK_FALSE(Saving([](auto& c) { c.every_seconds = 0; }).checkpointer->due_by_clock());
  CHECK_FALSE(Saving([](auto& c) { c.every_seconds = 3600; }).checkpointer->due_by_clock());
  Saving s([](auto& c) { c.every_seconds = 1; });
  while (!s.checkpointer->due_by_clock()) sleep_ms(20);
  s.checkpointer->save({.step = 1});
  CHECK_FALSE(s.checkpointer->due_by_clock());
}

TEST_CASE("a save that comes too early is skipped with a warning, and its turn is over") {
  const LogCapture log;
  Saving s([](auto& c) { c.every_seconds = 3600; });
  int64_t step = 1;
  const auto warned = [&] {
    return log.text().find("is skipped: the one before is still being written") != std::string::npos;
  };
  for (; step < 200 && !warned(); ++step) s.checkpointer->save({.step = step});
  CHECK(warned());
  CHECK_FALSE(s.checkpointer->due_by_clock());
  // The last state is never skipped, and nobody is told that it might be.
  const std::string before = log.text();
  s.checkpointer->save_last({.step = 1000});
  CHECK(log.text() == before);
  s.checkpointer->finish({.step = 1000});
  CHECK(std::filesystem::exists(s.file(1000)));
}

TEST_CASE("a failed save is shown, and the run goes on when it may") {
  const LogCapture log;
  Saving s;
  s.block(5);
  s.checkpointer->save({.step = 5});
  const std::vector<SaveResult> results = s.wait_and_poll();
  REQUIRE(results.size() == 1);
  REQUIRE(results[0].error);
  CHECK(results[0].error->code() == ExitCode::checkpoint);
  CHECK_THAT(log.text(), ContainsSubstring("error: " + s.file(5)) && ContainsSubstring("failed saves so far: 1"));
  CHECK(s.finish({.step = 6}) == std::vector<int64_t>{6});
  CHECK(std::filesystem::exists(s.file(6)));
}

TEST_CASE("a failed save ends the run when checkpoint.on_error says so") {
  Saving s([](auto& c) { c.on_error = SaveErrorRule::fail; });
  s.block(5);
  s.checkpointer->save({.step = 5});
  const auto error = error_of([&] { s.wait_and_poll(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  CHECK_THAT(error->what(), ContainsSubstring(s.file(5)));
  REQUIRE(s.ended.size() == 1);  // told before it was thrown
  CHECK(s.ended[0].error);
}

TEST_CASE("a last save that fails is an error, whatever checkpoint.on_error says") {
  Saving s;
  s.block(5);
  const auto error = error_of([&] { s.checkpointer->finish({.step = 5}); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  CHECK_THAT(error->what(), ContainsSubstring(s.file(5)));
}

TEST_CASE("a state that is not finite is not published and ends the run") {
  Saving s;
  s.run->model.parameter(0)[3] = std::numeric_limits<float>::quiet_NaN();
  s.checkpointer->save({.step = 5});
  const auto error = error_of([&] { s.wait_and_poll(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::numerics);
  CHECK_FALSE(std::filesystem::exists(s.file(5)));
}

TEST_CASE("a step that is on disk, or on its way, is not written again") {
  const LogCapture log;
  Saving s;
  s.checkpointer->save({.step = 7});
  s.checkpointer->save({.step = 7});
  CHECK(s.finish({.step = 7}) == std::vector<int64_t>{7});
  CHECK_THAT(log.text(), !ContainsSubstring("is skipped"));
  const auto written = std::filesystem::last_write_time(s.file(7));
  s.checkpointer->save({.step = 7});
  CHECK(s.finish({.step = 7}).empty());
  CHECK(std::filesystem::last_write_time(s.file(7)) == written);

  Saving resumed({}, {.resumed_step = 7});
  CHECK(resumed.finish({.step = 7}).empty());
  CHECK_FALSE(std::filesystem::exists(resumed.file(7)));
}

TEST_CASE("a step is written again after the run went back past it") {
  Saving s;
  s.checkpointer->save({.step = 4});
  s.wait_and_poll();
  s.checkpointer->save({.step = 8});
  s.wait_and_poll();
  std::filesystem::resize_file(s.file(8), 100);
  s.checkpointer->returned_to({.step = 4});
  s.checkpointer->save({.step = 8});
  REQUIRE(s.wait_and_poll().size() == 1);
  CHECK(CheckpointReader::open(s.file(8)).meta().step == 8);
  std::filesystem::resize_file(s.file(8), 100);
  s.checkpointer->returned_to({.step = 4});
  CHECK(s.finish({.step = 8}) == std::vector<int64_t>{8});
  CHECK(CheckpointReader::open(s.file(8)).meta().step == 8);
}

TEST_CASE("the best state is skipped with a warning while another save is being written, and nobody waits") {
  const LogCapture log;
  Saving s;
  bool skipped = false;
  for (int64_t step = 1; step < 400 && !skipped; step += 2) {
    s.checkpointer->save({.step = step});
    skipped = !s.checkpointer->save_if_best({.step = step + 1}, static_cast<double>(step));
  }
  CHECK(skipped);
  CHECK_THAT(log.text(), ContainsSubstring("is the best so far, but is not saved: the checkpoint before is still"));
  s.wait_and_poll();
  CHECK(s.checkpointer->save_if_best({.step = 1000}, 1000));
  s.finish({.step = 1001});
  CHECK(std::filesystem::read_symlink(s.scratch / "run/best") == checkpoint_name(1000));
}

TEST_CASE("a best state whose save fails is none: a worse one that can be saved is the best") {
  Saving s;
  REQUIRE(s.checkpointer->save_if_best({.step = 1}, 0.5));
  s.wait_and_poll();
  CHECK_FALSE(s.checkpointer->save_if_best({.step = 2}, 0.5));
  s.block(3);
  REQUIRE(s.checkpointer->save_if_best({.step = 3}, 0.9));
  REQUIRE(s.wait_and_poll().front().error);
  CHECK(s.checkpointer->best().score == 0.5);
  CHECK(s.checkpointer->best().step == 1);
  s.checkpointer->save({.step = 4});
  s.wait_and_poll();
  const auto training = CheckpointReader::open(s.file(4)).training();
  CHECK(std::get<double>(training.at("best_score")) == 0.5);
  CHECK(std::get<int64_t>(training.at("best_step")) == 1);
  CHECK(s.checkpointer->save_if_best({.step = 5}, 0.8));
  s.wait_and_poll();
  CHECK(std::filesystem::read_symlink(s.scratch / "run/best") == checkpoint_name(5));
}

TEST_CASE("the state whose save is on its way may turn out to be the best") {
  Saving s;
  s.checkpointer->save({.step = 3});
  CHECK(s.checkpointer->save_if_best({.step = 3}, 0.5));
  CHECK(s.wait_and_poll().size() == 1);
  REQUIRE(s.checkpointer->wait_for_save_in_flight(60));
  CHECK(std::filesystem::read_symlink(s.scratch / "run/best") == checkpoint_name(3));
  CHECK(s.checkpointer->save_if_best({.step = 3}, 0.6));
  CHECK(s.checkpointer->best().score == 0.6);
  CHECK(s.finish({.step = 3}).empty());
}

TEST_CASE("a score that is not a number is no best one, and keeps no later one from being it") {
  Saving s;
  CHECK_FALSE(s.checkpointer->save_if_best({.step = 1}, std::numeric_limits<double>::quiet_NaN()));
  CHECK(s.checkpointer->wait_for_save_in_flight(60));
  CHECK(s.checkpointer->best().step == -1);
  CHECK(s.checkpointer->save_if_best({.step = 2}, 0.1));
  s.wait_and_poll();
  CHECK_FALSE(s.checkpointer->save_if_best({.step = 3}, std::numeric_limits<double>::quiet_NaN()));
  CHECK(s.checkpointer->best().step == 2);
}

TEST_CASE("a best state that the run went back past is forgotten") {
  Saving s({}, {.best = {.score = 0.5, .step = 2}});
  REQUIRE(s.checkpointer->save_if_best({.step = 8}, 0.9));
  s.wait_and_poll();
  s.checkpointer->returned_to({.step = 4, .best = {.score = 0.5, .step = 2}});
  CHECK(s.checkpointer->best().score == 0.5);
  CHECK(s.checkpointer->save_if_best({.step = 8}, 0.6));
  REQUIRE(s.wait_and_poll().size() == 1);
  CHECK(std::get<double>(CheckpointReader::open(s.file(8)).training().at("best_score")) == 0.6);
}

TEST_CASE("the state may change once it is copied") {
  Saving s;
  const auto before = s.run->values();
  s.checkpointer->save({.step = 1});
  s.checkpointer->wait_copied();
  s.run->fill(100);
  REQUIRE(s.wait_and_poll().size() == 1);
  const CheckpointReader file = CheckpointReader::open(s.file(1));
  std::vector<float> read(before[0].second.size());
  file.read(before[0].first, read);
  CHECK(read == before[0].second);
}

TEST_CASE("nothing is saved into a directory that another run has taken over") {
  const ScratchDirectory other;
  const RunLock lock(other.path(), {.heartbeat_seconds = 0.01, .stale_seconds = 0.1});
  Saving s({}, {.lock = &lock});
  s.checkpointer->save({.step = 1});
  CHECK(s.wait_and_poll().size() == 1);
  write_text_atomically(other / "run.lock", "host elsewhere\npid 1\n", ExitCode::internal);
  while (lock.held()) sleep_ms(5);
  for (const auto& attempt : std::vector<std::function<void()>>{[&] { s.checkpointer->save({.step = 2}); },
                                                                [&] { s.checkpointer->save_last({.step = 2}); },
                                                                [&] { s.checkpointer->finish({.step = 2}); }}) {
    const auto error = error_of(attempt);
    REQUIRE(error);
    CHECK(error->code() == ExitCode::checkpoint);
    CHECK_THAT(error->what(), ContainsSubstring("was taken over by another run"));
  }
  CHECK_FALSE(std::filesystem::exists(s.file(2)));
}
