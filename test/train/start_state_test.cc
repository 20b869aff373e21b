#include "lockstep/train/start_state.h"

#include <algorithm>

#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/train/initialize.h"
#include "test/catch.h"
#include "test/train/starting.h"

using namespace lockstep;
using testing::world;

TEST_CASE("a fresh start is the model's start values on every rank, the averages with them") {
  const SharedDirectory directory;
  Starting s(config_with(directory));
  s.run.fill(static_cast<float>(world().rank()));
  const StartState start = s.start();
  CHECK(start.progress.step == 0);
  CHECK(start.progress.position == 0);
  CHECK(start.progress.updates == 0);
  CHECK(start.resumed_from.empty());
  const ParameterTable& table = s.run.model.parameters();
  for (ParameterId id = 0; id < table.size(); ++id) {
    INFO(table[id].name);
    const std::span<float> values = s.run.model.parameter(id), average = s.run.model.parameter(id, Weights::average);
    std::vector<float> expected(values.size());
    initialize_parameter(table[id], InitRule::truncated_normal, 1, expected);
    CHECK(std::ranges::equal(values, expected));
    CHECK(std::ranges::equal(average, expected));
  }
}

TEST_CASE("resume = auto goes on from the newest checkpoint, with every value, slot and average") {
  const SharedDirectory directory;
  const Config config = config_with(directory);
  save(config, 20);
  const Values newest = save(config, 30);
  Starting s(config);
  const StartState start = s.start();
  CHECK(start.progress.step == 30);
  CHECK(start.progress.position == 300);
  CHECK(start.progress.updates == 29);
  CHECK(start.resumed_from == directory / "run/step-00000030.h5");
  CHECK(start.in_run_directory);
  CHECK(s.run.values() == newest);
}

TEST_CASE("a damaged checkpoint is passed over, and when all are, the start fails on every rank") {
  const SharedDirectory directory;
  const Config config = config_with(directory);
  save(config, 20);
  save(config, 30);
  damage(directory / "run/step-00000030.h5");
  CHECK(Starting(config).start().progress.step == 20);
  damage(directory / "run/step-00000020.h5");
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
}

TEST_CASE("a run keeps the names of its classes where the data have none, and refuses data of other classes") {
  const SharedDirectory directory;
  const Config config = config_with(directory);
  {
    const SmallRun run(config);
    Checkpointer checkpointer(run.config, run.model,
                              {.root = world().is_root(), .config_text = to_toml(config), .classes = {"cat", "dog"}});
    checkpointer.finish({.step = 5, .position = 50, .updates = 5});
    world().barrier({"the save"});
  }
  Starting starting(config);
  const auto start_with = [&](const std::vector<std::string>& classes) {
    return prepare_start(starting.context, classes).classes;
  };
  using Names = std::vector<std::string>;
  CHECK(start_with({}) == Names{"cat", "dog"});
  CHECK(start_with({"cat", "dog", "owl"}) == Names{"cat", "dog", "owl"});
  const auto error = agreed_error_of([&] { start_with({"bat", "cat", "dog"}); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::data);
  CHECK_THAT(error->what(), ContainsSubstring("class 0 is 'cat'") && ContainsSubstring("'bat' in the data"));
}

TEST_CASE("resume = must and latest want a checkpoint") {
  const SharedDirectory directory;
  const std::string resume = GENERATE("must", "latest");
  const auto error = agreed_error_of([&] { Starting(config_with(directory, resume)).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  CHECK_THAT(error->what(), ContainsSubstring("checkpoint.resume = \"" + resume + "\", but there is no checkpoint in " +
                                              (directory / "run")));
  save(config_with(directory), 5);
  CHECK(Starting(config_with(directory, resume)).start().progress.step == 5);
}

TEST_CASE("resume = never refuses a directory with checkpoints, unless they may go") {
  const SharedDirectory directory;
  Config config = config_with(directory, "never");
  CHECK(Starting(config).start().progress.step == 0);
  save(config, 5);
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(), ContainsSubstring(directory / "run") && ContainsSubstring("checkpoint.overwrite = true"));
  CHECK(find_checkpoints(directory / "run").size() == 1);
  world().barrier({"the look at the directory"});
  config.checkpoint.overwrite = true;
  Starting s(config);
  const StartState start = s.start();
  CHECK(start.progress.step == 0);
  CHECK(find_checkpoints(directory / "run").size() == 1);
  world().barrier({"the look at the directory"});
  delete_given_up(s.context, start);
  CHECK(find_checkpoints(directory / "run").empty());
}

TEST_CASE("resume may name a file, of another directory too") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  save(config, 20);
  const Values saved = save(config, 30);
  config.checkpoint.resume = directory / "run/step-00000030.h5";
  {
    Starting s(config);
    const StartState start = s.start();
    CHECK(start.progress.step == 30);
    CHECK(start.in_run_directory);
    CHECK(s.run.values() == saved);
  }
  config.checkpoint.directory = directory / "other";
  CHECK_FALSE(Starting(config).start().in_run_directory);
  config.checkpoint.resume = directory / "run/missing.h5";
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  CHECK_THAT(error->what(), ContainsSubstring(directory / "run/missing.h5"));
}

TEST_CASE("going back to an older file of the run's own directory is refused, unless the later ones may go") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  save(config, 20);
  save(config, 30);
  config.checkpoint.resume = directory / "run/step-00000020.h5";
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(), ContainsSubstring("step 20") && ContainsSubstring("holds step 30"));
  CHECK(find_checkpoints(directory / "run").size() == 2);
  world().barrier({"the look at the directory"});
  config.checkpoint.overwrite = true;
  Starting s(config);
  const StartState start = s.start();
  CHECK(start.progress.step == 20);
  CHECK(find_checkpoints(directory / "run").size() == 2);
  world().barrier({"the look at the directory"});
  delete_given_up(s.context, start);
  CHECK(find_checkpoints(directory / "run").size() == 1);
}
