// Checkpoints that do not fit a run, and differences between the two.
#include <algorithm>

#include "lockstep/checkpoint/run_directory.h"
#include "test/catch.h"
#include "test/train/log_capture.h"
#include "test/train/starting.h"

using namespace lockstep;
using testing::world;

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
    for (const CheckpointArray& a : run.arrays()) {
      if (a.path != lacking) contents.arrays.push_back(a);
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

TEST_CASE("a run resumes with other layers frozen, which is said, and slots that were not saved start afresh") {
  const SharedDirectory directory;
  const Config all = config_with(directory);
  Config head = all;
  head.train.freeze = {"conv*"};
  for (const bool thaws : {false, true}) {
    const Config &before = thaws ? head : all, &now = thaws ? all : head;
    const int64_t step = thaws ? 30 : 20;
    const Values saved = save(before, step);
    const LogCapture log;
    Starting s(now);
    s.run.fill(7);
    CHECK(s.start().progress.step == step);
    size_t fresh = 0;
    for (const auto& [path, values] : s.run.values()) {
      INFO(path);
      const auto found = std::ranges::find(saved, path, &Values::value_type::first);
      if (found != saved.end()) {
        CHECK(found->second == values);
      } else {
        CHECK(path.starts_with("/optimizer/momentum/conv"));
        CHECK(std::ranges::all_of(values, [](float v) { return v == 0; }));
        ++fresh;
      }
    }
    CHECK((fresh > 0) == thaws);
    if (world().is_root()) CHECK_THAT(log.text(), ContainsSubstring("was trained with train.freeze = ["));
  }
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
