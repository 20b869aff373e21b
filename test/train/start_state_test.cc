#include "lockstep/train/start_state.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/config/load.h"
#include "lockstep/io/file.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/initialize.h"
#include "test/catch.h"
#include "test/train/log_capture.h"
#include "test/train/world.h"

using namespace lockstep;
using testing::world;

namespace {

// A run on every rank, and its ways to start.
struct Starting : SmallRank {
  using SmallRank::SmallRank;
  StartState start() { return prepare_start(context); }
};

Config config_with(const SharedDirectory& directory, const std::string& resume = "auto") {
  Config config = small_config(directory / "run");
  config.checkpoint.resume = resume;
  return config;
}

using Values = std::vector<std::pair<std::string, std::vector<float>>>;

// Saves a state of its own kind at `step` into the configuration's directory, and returns its values.
Values save(const Config& config, int64_t step) {
  const SmallRun run(config);
  run.fill(static_cast<float>(step));
  Checkpointer checkpointer(run.config, run.model, {.root = world().is_root(), .config_text = to_toml(config)});
  checkpointer.finish({.step = step, .position = 10 * step, .updates = step - 1});
  world().barrier({"the save"});
  return run.values();
}

// Overwrites a byte in the middle of a file, on rank 0.
void damage(const std::string& path) {
  if (world().is_root()) {
    std::string text = read_text_file(path, ExitCode::internal);
    text[text.size() / 2] ^= 1;
    write_text_atomically(path, text, ExitCode::internal);
  }
  world().barrier({"the damage"});
}

std::string message_of(const std::optional<Error>& error) { return error ? error->what() : "no error"; }

}  // namespace

TEST_CASE("the first loss scale is the largest power of two with which a sum over the batch fits into half precision") {
  CHECK(first_loss_scale(1) == 32768);
  CHECK(first_loss_scale(32) == 1024);
  CHECK(first_loss_scale(48) == 1024);
  CHECK(first_loss_scale(256) == 128);
  CHECK(first_loss_scale(100'000) == 1);
  for (int64_t batch = 1; batch <= 2048; ++batch) CHECK(first_loss_scale(batch) * static_cast<double>(batch) <= 65504);
}

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

TEST_CASE("a checkpoint of another shape is refused with both shapes") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  save(config, 20);
  config.model.classes = 4;
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(), ContainsSubstring("fc5.weight") && ContainsSubstring("[3,192]") &&
                                ContainsSubstring("[4,192]") && ContainsSubstring("fc5.bias"));
}

TEST_CASE("a checkpoint without what the optimizer or the average remembers is refused") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  config.ema.decay = 0;
  save(config, 20);
  Config other = config;
  other.optimizer.name = "adamw";
  const auto slots = agreed_error_of([&] { Starting(other).start(); });
  CHECK_THAT(message_of(slots), ContainsSubstring("/optimizer/exp_avg"));
  other = config;
  other.ema.decay = 0.9;
  const auto average = agreed_error_of([&] { Starting(other).start(); });
  CHECK_THAT(message_of(average), ContainsSubstring("/ema"));
  other = config;
  other.model.name = "inception_v3";
  other.model.image_size = 75;
  other.model.aux_weight = 0;
  const auto model = agreed_error_of([&] { Starting(other).start(); });
  CHECK_THAT(message_of(model), ContainsSubstring("is a checkpoint of cifar10_cnn, model.name is inception_v3"));
  for (const auto& error : {slots, average, model}) CHECK(error->code() == ExitCode::config);
}

TEST_CASE("a whole file that lacks one array of weights, averages or slots, or the position, is refused by its name") {
  const SharedDirectory directory;
  const Config config = config_with(directory);
  const SmallRun run(config);
  const std::string lacking = GENERATE(as<std::string>(), "/model/fc5.bias", "/ema/conv1.weight",
                                       "/optimizer/momentum/fc5.weight", "/training/position");
  if (world().is_root()) {
    CheckpointContents contents{.meta = {.step = 20, .model = config.model.name}};
    contents.training = {{"position", int64_t{200}}, {"updates", int64_t{20}}};
    contents.training.erase(lacking.substr(lacking.rfind('/') + 1));
    for (const ModelArray& a : run.arrays()) {
      if (a.path != lacking) contents.arrays.push_back({a.path, a.shape, a.data});
    }
    make_directories(config.checkpoint.directory, ExitCode::internal);
    const std::string path = directory / "run/" + checkpoint_name(20);
    write_file_atomically(path, build_checkpoint(contents, path).bytes(), {});
  }
  world().barrier({"the file"});
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == (lacking.starts_with("/training") ? ExitCode::checkpoint : ExitCode::config));
  CHECK_THAT(error->what(), ContainsSubstring(checkpoint_name(20)) && ContainsSubstring(lacking));
}

TEST_CASE("another seed changes the order of samples, which is said") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  save(config, 20);
  config.train.seed = 77;
  const LogCapture log;
  CHECK(Starting(config).start().progress.step == 20);
  if (world().is_root()) CHECK_THAT(log.text(), ContainsSubstring("train.seed = 1, this run has 77"));
}

TEST_CASE("what a run trained on is not kept for evaluation by a larger share of the same data") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  config.data.train = {"/data/train"};
  config.data.validation_fraction = 0.1;
  save(config, 20);
  const auto refusal = [&](const Config& c) {
    const auto training = agreed_error_of([&] { Starting(c).start(); });
    const auto evaluation = agreed_error_of([&] {
      Starting s(c, Purpose::evaluate);
      load_for_evaluation(s.context, {}, "latest");
    });
    CHECK(message_of(training) == message_of(evaluation));
    if (training) CHECK(training->code() == ExitCode::config);
    return message_of(training);
  };
  config.train.seed = 77;
  CHECK(refusal(config) == "no error");
  config.data.validation_fraction = 0.2;
  CHECK_THAT(refusal(config),
             ContainsSubstring("step-00000020.h5 was trained with data.validation_fraction = 0.1, here "
                               "it is 0.2"));
  config.data.train = {"/data/other"};
  CHECK(refusal(config) == "no error");
  config.data.train = {"/data/train"};
  config.data.validation_fraction = 0.05;
  CHECK(refusal(config) == "no error");
}

TEST_CASE("init_from gives weights alone, from a file of bare weights or a checkpoint") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  const SmallRun trained(config);
  trained.fill(3);
  if (world().is_root()) {
    Hdf5File file = Hdf5File::create_in_memory("weights", {});
    for (const ModelArray& a : trained.arrays()) {
      if (!a.path.starts_with("/model/")) continue;
      file.write<float>(a.path.substr(6), std::span(a.shape.begin(), a.shape.end()),
                        {a.data, static_cast<size_t>(a.shape.elements())});
    }
    const Hdf5Image image = std::move(file).finish();
    write_file_atomically(directory / "weights.h5", image.bytes(), {});
  }
  world().barrier({"the weights"});
  config.checkpoint.init_from = directory / "weights.h5";
  Starting s(config);
  const StartState start = s.start();
  CHECK(start.progress.step == 0);
  CHECK(start.resumed_from.empty());
  for (const auto& [path, values] : s.run.values()) {
    INFO(path);
    if (path.starts_with("/optimizer/")) {
      CHECK(std::ranges::all_of(values, [](float v) { return v == 0; }));
      continue;
    }
    const std::string name = path.substr(path.find('/', 1) + 1);
    CHECK(std::ranges::equal(values, trained.model.parameter(trained.model.parameters().find(name))));
  }

  // A checkpoint to resume from goes before it, and serves as such a file itself.
  const Values saved = save(config, 7);
  CHECK(Starting(config).start().progress.step == 7);
  config.checkpoint.directory = directory / "fresh";
  config.checkpoint.init_from = directory / "run/step-00000007.h5";
  Starting again(config);
  CHECK(again.start().progress.step == 0);
  CHECK(again.run.values()[0] == saved[0]);
}

TEST_CASE(
    "a head for other classes starts from random values with init_from, which is logged, and everything else must "
    "fit") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  save(config, 7);
  config.checkpoint.directory = directory / "tuned";
  config.checkpoint.init_from = directory / "run/step-00000007.h5";
  config.model.classes = 5;
  {
    const LogCapture log;
    Starting s(config);
    CHECK(s.start().progress.step == 0);
    const ParameterTable& table = s.run.model.parameters();
    const CheckpointReader file = CheckpointReader::open(config.checkpoint.init_from);
    for (ParameterId id = 0; id < table.size(); ++id) {
      INFO(table[id].name);
      std::vector<float> expected(static_cast<size_t>(table[id].shape.elements()));
      if (table[id].name.starts_with("fc5.")) {
        initialize_parameter(table[id], InitRule::truncated_normal, 1, expected);
      } else {
        file.read("/model/" + table[id].name, expected);
      }
      CHECK(std::ranges::equal(s.run.model.parameter(id), expected));
    }
    if (world().is_root()) {
      CHECK_THAT(log.text(), ContainsSubstring("weights from " + config.checkpoint.init_from +
                                               "; fc5 start from fresh values (the file has 3 classes, the model 5)"));
    }
  }
  config.model.image_size = 16;  // another width of fc3
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(),
             ContainsSubstring("/model/fc3.weight is [384,256] in the file and [384,1024] in the model"));
  CHECK_THAT(error->what(), !ContainsSubstring("fc5"));
  config.checkpoint.init_exclude = {"fc3"};
  CHECK(Starting(config).start().progress.step == 0);
  config.checkpoint.init_exclude = {"fc3", "fc6"};
  CHECK_THAT(message_of(agreed_error_of([&] { Starting(config).start(); })),
             ContainsSubstring("fc6 is to be left out"));
}

TEST_CASE("a file of weights that lacks one is refused by its name") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  if (world().is_root()) {
    Hdf5File file = Hdf5File::create_in_memory("weights", {});
    const std::vector<float> bias(3);
    const int64_t dims[] = {3};
    file.write<float>("/fc5.bias", dims, bias);
    const Hdf5Image image = std::move(file).finish();
    write_file_atomically(directory / "weights.h5", image.bytes(), {});
  }
  world().barrier({"the weights"});
  config.checkpoint.init_from = directory / "weights.h5";
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(), ContainsSubstring("conv1.weight"));
}

TEST_CASE("evaluation takes weights and averages of the newest checkpoint or a named one, and deletes nothing") {
  const SharedDirectory directory;
  Config config = config_with(directory, "never");
  config.checkpoint.overwrite = true;
  const Values older = save(config, 20), newer = save(config, 30);
  Starting s(config, Purpose::evaluate);
  const LoadedWeights latest = load_for_evaluation(s.context, {}, "latest");
  CHECK(latest.step == 30);
  CHECK(latest.has_average);
  const Values loaded = s.run.values();  // without slots
  CHECK(std::equal(loaded.begin(), loaded.end(), newer.begin()));
  CHECK(load_for_evaluation(s.context, {}, directory / "run/step-00000020.h5").step == 20);
  CHECK(s.run.values()[0] == older[0]);
  for (const char* name : {"never", "auto"}) {  // words of checkpoint.resume, here files that do not exist
    const auto error = agreed_error_of([&] { load_for_evaluation(s.context, {}, name); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::checkpoint);
  }
  CHECK(find_checkpoints(directory / "run").size() == 2);
}

TEST_CASE("evaluation without averages in the file says so") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  config.ema.decay = 0;
  save(config, 20);
  config.ema.decay = 0.9;
  Starting s(config, Purpose::evaluate);
  CHECK_FALSE(load_for_evaluation(s.context, {}, "latest").has_average);
}
