#include "lockstep/config/load.h"

#include <algorithm>

#include "config/uses.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/model_info.h"
#include "test/catch.h"
#include "test/config/config_error.h"

using namespace lockstep;

namespace {

// A file with the training data that validate() asks for, and what else is given.
ConfigSources sources(const std::string& text) {
  return {.file_path = "/configs/c.toml", .file_text = "data.train = \"t\"\n" + text, .working_directory = "/home/a"};
}

std::string load_error(ConfigSources s) {
  return config_error([&] { load_config(s); });
}

}  // namespace

TEST_CASE("the command line wins over the environment, that over the file, that over the default") {
  ConfigSources s = sources("[train]\nseed = 2\nsteps = 20\nepochs = 2\n");
  s.environment = {{"PATH", "/bin"}, {"LOCKSTEP_TRAIN_SEED", "3"}, {"LOCKSTEP_TRAIN_STEPS", "30"}};
  s.overrides = {{"train.seed", "4"}};
  const LoadedConfig loaded = load_config(s);
  CHECK(loaded.config.train.seed == 4);
  CHECK(loaded.config.train.steps == 30);
  CHECK(loaded.config.train.epochs == 2);
  CHECK(loaded.config.train.batch_size == 32);
  CHECK(loaded.origin.at("train.seed") == "command line");
  CHECK(loaded.origin.at("train.steps") == "environment LOCKSTEP_TRAIN_STEPS");
  CHECK(loaded.origin.at("train.epochs") == "/configs/c.toml:5");
  CHECK(loaded.origin.at("train.batch_size") == "default");
}

TEST_CASE("a file is not needed") {
  const LoadedConfig loaded =
      load_config({.overrides = {{"data.format", "synthetic"}, {"train.steps", "1"}}, .working_directory = "/home/a"});
  CHECK(loaded.config.data.format == "synthetic");
  CHECK(loaded.config.checkpoint.directory == "/home/a/runs/inception_v3");
}

TEST_CASE("inputs in the file are relative to it, outputs and the command line to the working directory") {
  ConfigSources s = sources(
      "data.validation = ['../v', '/abs/v']\ncheckpoint.directory = \"runs/a\"\n"
      "checkpoint.init_from = \"w.h5\"\ncheckpoint.resume = \"step-00000001.h5\"\n");
  Config config = load_config(s).config;
  CHECK(config.data.train == std::vector<std::string>{"/configs/t"});
  CHECK(config.data.validation == std::vector<std::string>{"/v", "/abs/v"});
  CHECK(config.checkpoint.directory == "/home/a/runs/a");
  CHECK(config.checkpoint.init_from == "/configs/w.h5");
  CHECK(config.checkpoint.resume == "/configs/step-00000001.h5");

  s.environment = {{"LOCKSTEP_DATA_VALIDATION", "e1,e2"}};
  s.overrides = {{"data.train", "x,/y"}, {"checkpoint.resume", "must"}, {"checkpoint.directory", "./b"}};
  config = load_config(s).config;
  CHECK(config.data.train == std::vector<std::string>{"/home/a/x", "/y"});
  CHECK(config.data.validation == std::vector<std::string>{"/home/a/e1", "/home/a/e2"});
  CHECK(config.checkpoint.resume == "must");
  CHECK(config.checkpoint.directory == "/home/a/b");
}

TEST_CASE("the same file loaded from another directory names the same inputs") {
  ConfigSources here = sources("checkpoint.directory = \"/runs/a\"\n");
  ConfigSources there = here;
  there.working_directory = std::string("/");
  CHECK(load_config(here).config == load_config(there).config);
}

TEST_CASE("the default checkpoint directory bears the model's name") {
  CHECK(load_config(sources("model.name = \"cifar10_cnn\"\n")).config.checkpoint.directory ==
        "/home/a/runs/cifar10_cnn");
}

TEST_CASE("errors name the source") {
  ConfigSources s = sources("");
  s.overrides = {{"train.sed", "1"}};
  CHECK(load_error(s) == "command line: unknown key 'train.sed'; did you mean train.seed?");
  s.overrides = {{"seed", "1"}};
  CHECK(load_error(s) == "command line: unknown key 'seed'; did you mean train.seed?");
  s.overrides = {{"train.batch_size", "0"}};
  CHECK(load_error(s) == "command line: train.batch_size must be in [1, 1000000], not 0");
  s.overrides = {};
  s.environment = {{"LOCKSTEP_OPTIMIZER_LR", "0,1"}};
  CHECK(load_error(s) == "environment LOCKSTEP_OPTIMIZER_LR: optimizer.lr takes a number, not '0,1'");
  CHECK(load_error(sources("checkpoint.directory = \"$SCRATCH/run\"\n"))
            .starts_with("/configs/c.toml:2: checkpoint.directory = '$SCRATCH/run': "));
}

TEST_CASE("a working directory that TOML cannot hold is an error where it is needed") {
  ConfigSources s = sources("");
  s.working_directory = std::string("/home/a\xff");
  CHECK_THAT(load_error(s), ContainsSubstring("checkpoint.directory = '") && ContainsSubstring("is not UTF-8 text"));
  s.overrides = {{"checkpoint.directory", "/runs"}};
  CHECK_NOTHROW(load_config(s));
}

TEST_CASE("a misspelt variable of ours is an error, others with the prefix are left alone") {
  ConfigSources s = sources("");
  s.environment = {{"LOCKSTEP_TRIAN_SEED", "1"}};
  CHECK(load_error(s) == "environment variable 'LOCKSTEP_TRIAN_SEED': no such key; did you mean LOCKSTEP_TRAIN_SEED?");
  s.environment = {{"LOCKSTEP_TRAIN_LR", "1"}};
  CHECK(load_error(s) == "environment variable 'LOCKSTEP_TRAIN_LR': no such key; did you mean LOCKSTEP_OPTIMIZER_LR?");
  s.environment = {{"LOCKSTEP_TRAIN_ZZZZZZZZZ", "1"}};
  CHECK(load_error(s) == "environment variable 'LOCKSTEP_TRAIN_ZZZZZZZZZ': no such key");
  s.environment = {{"LOCKSTEP_CACHE", "/tmp"}, {"LOCKSTEP_WERROR", "ON"}, {"LOCKSTEP_", ""}};
  CHECK_NOTHROW(load_config(s));
}

TEST_CASE("batch_size and global_batch together are an error that names both settings") {
  ConfigSources s = sources("[train]\nbatch_size = 8\n");
  s.overrides = {{"train.global_batch", "64"}};
  CHECK_THAT(load_error(s),
             ContainsSubstring("train.batch_size (/configs/c.toml:3) and train.global_batch (command line)"));
  CHECK_NOTHROW(load_config(sources("train.global_batch = 64\n")));
}

TEST_CASE("checks between keys run on the merged result") {
  ConfigSources s = sources("model.image_size = 75\n");
  CHECK_THAT(load_error(s), ContainsSubstring("model.aux_weight = 0.4 with model.image_size = 75"));
  s.overrides = {{"model.aux_weight", "0"}};
  CHECK(load_config(s).config.model.image_size == 75);
}
TEST_CASE("a model brings its own defaults, behind file, environment and command line and before the built-in ones") {
  ConfigSources s = sources("[model]\nname = \"resnet50\"\n[train]\nlabel_smoothing = 0.2\n");
  const LoadedConfig loaded = load_config(s);
  CHECK(loaded.config.model.image_size == 224);
  CHECK(loaded.config.model.bn_epsilon == 1e-5);
  CHECK(loaded.config.model.dropout == 0);
  CHECK(loaded.config.optimizer.name == "sgd");
  CHECK(loaded.config.optimizer.lr == 0.1);
  CHECK(loaded.config.schedule.name == ScheduleKind::step);
  CHECK(loaded.config.train.label_smoothing == 0.2);
  CHECK(loaded.config.train.batch_size == Config{}.train.batch_size);
  CHECK(loaded.origin.at("model.bn_epsilon") == "default of resnet50");
  CHECK(loaded.origin.at("train.label_smoothing") == "/configs/c.toml:5");
  s.environment = {{"LOCKSTEP_OPTIMIZER_LR", "0.5"}};
  s.overrides = {{"model.bn_epsilon", "0.002"}};
  CHECK(load_config(s).config.optimizer.lr == 0.5);
  CHECK(load_config(s).config.model.bn_epsilon == 0.002);
  s.overrides = {{"model.name", "inception_v3"}};
  CHECK(load_config(s).config.model.bn_epsilon == 0.001);
}

TEST_CASE("where another optimizer or schedule is chosen than the model's, its rates do not count") {
  ConfigSources s = sources("[model]\nname = \"cifar10_cnn\"\n[optimizer]\nname = \"sgd\"\n");
  CHECK(load_config(s).config.optimizer.lr == Config{}.optimizer.lr);
  CHECK(load_config(s).config.optimizer.weight_decay == Config{}.optimizer.weight_decay);
  CHECK(load_config(s).config.schedule.name == ScheduleKind::cosine);
  s = sources("[model]\nname = \"cifar10_cnn\"\n[optimizer]\nname = \"adamw\"\n[schedule]\nname = \"constant\"\n");
  CHECK(load_config(s).config.optimizer.lr == 2e-3);
  CHECK(load_config(s).config.schedule.warmup_epochs == 0);
}

TEST_CASE("the defaults of a model are keys with values that they take, and a whole configuration") {
  for (const ModelInfo& info : model_infos()) {
    const std::string model(info.name);
    INFO(model);
    CHECK(info.defaults.empty() == (model == Config().model.name));  // its defaults are the built-in ones
    std::vector<Assignment> overrides = {{"model.name", model}, {"data.format", "synthetic"}};
    if (model == "file") overrides.push_back({"model.definition", "the text of a file"});
    LoadedConfig loaded;
    CHECK_NOTHROW(loaded = load_config({.overrides = overrides, .working_directory = "/w"}));
    for (const auto& [name, value] : info.defaults) {
      CHECK(loaded.origin.at(std::string(name)) == "default of " + model);
    }
    CHECK(settings_without_effect(loaded).empty());
  }
}

TEST_CASE("what a setting without effect needs are models and formats that exist") {
  for (const ModelInfo& model : model_infos()) {
    const std::pair<const char*, bool> facts[] = {
        {"bn_epsilon", model.batch_norm}, {"aux_weight", model.auxiliary_image > 0}, {"vocabulary", model.sparse}};
    for (const auto& [key, takes_it] : facts) {
      INFO(model.name << ", model." << key);
      const auto use = std::ranges::find_if(
          config_uses(), [&](const ConfigUse& u) { return names_key(u.keys, std::string("model.") + key); });
      REQUIRE(use != config_uses().end());
      CHECK((use->when.find(model.name) != std::string_view::npos) == takes_it);
    }
  }
  const LoadedConfig loaded =
      load_config({.overrides = {{"data.format", "cifar10"}, {"data.train", "a.bin"}, {"data.jpeg_scaling", "true"}},
                   .working_directory = "/w"});
  REQUIRE(settings_without_effect(loaded).size() == 1);
  CHECK_THAT(settings_without_effect(loaded).front(),
             ContainsSubstring("it needs data.format = \"tfrecord\" or \"folder\""));
  const ConfigKey& format = *find_config_key("data.format");
  CHECK(format.allows("tfrecord"));
  CHECK(format.allows("folder"));
}

TEST_CASE(
    "every setting that has no effect is named once, with where it was given and what it needs, defaults are not") {
  const std::string file =
      "[model]\nname = \"cifar10_cnn\"\nbn_epsilon = 0.1\naux_weight = 0\n[optimizer]\nname = \"adamw\"\n"
      "momentum = 0.9\nepsilon = 1e-8\n[schedule]\nname = \"constant\"\nboundaries = [1]\n"
      "[eval]\nbatch_size = 3\nevery_epochs = 2\n[watchdog]\nenabled = false\nsave_abort_seconds = 3\n";
  ConfigSources s = sources(file);
  s.environment = {{"LOCKSTEP_SCHEDULE_DECAY_RATE", "0.5"}};
  s.overrides = {{"data.shuffle", "false"},
                 {"data.shuffle_block", "8"},
                 {"checkpoint.overwrite", "true"},
                 {"graph.rewrites", "false"},
                 {"graph.recompute", "convolutions"}};
  const std::vector<std::string> expected = {
      "model.aux_weight = 0.0 (/configs/c.toml:5): it needs a model with an auxiliary head (inception_v3)",
      "model.bn_epsilon = 0.1 (/configs/c.toml:4): it needs a model with batch normalization (inception_v3, resnet18, "
      "resnet34, resnet50, resnet101, resnet152, file)",
      "data.shuffle_block = 8 (command line): it needs data.shuffle = true",
      "optimizer.momentum = 0.9 (/configs/c.toml:8): it needs optimizer.name = \"sgd\", \"rmsprop_tf\", \"rmsprop\" or "
      "\"lars\"",
      "schedule.decay_rate = 0.5 (environment LOCKSTEP_SCHEDULE_DECAY_RATE): it needs schedule.name = \"exponential\" "
      "or "
      "\"step\"",
      "schedule.boundaries = [1.0] (/configs/c.toml:12): it needs schedule.name = \"piecewise\"",
      "checkpoint.overwrite = true (command line): it needs checkpoint.resume = \"never\" or a path",
      "eval.every_epochs = 2.0 (/configs/c.toml:15): it needs data.validation or data.validation_fraction",
      "eval.batch_size = 3 (/configs/c.toml:14): it needs data.validation or data.validation_fraction",
      "graph.recompute = \"convolutions\" (command line): it needs graph.rewrites = true",
      "watchdog.save_abort_seconds = 3.0 (/configs/c.toml:18): it needs watchdog.enabled = true"};
  CHECK(settings_without_effect(load_config(s)) == expected);
}

TEST_CASE("the table of effects names keys that exist, and each row can hold and fail") {
  for (const ConfigUse& use : config_uses()) {
    INFO(use.keys);
    size_t covered = 0;
    for (const ConfigKey& key : config_keys()) covered += names_key(use.keys, key.full_name()) ? 1 : 0;
    const auto words = static_cast<size_t>(std::ranges::count(use.keys, ' ')) + 1;
    CHECK(covered >= words);
    if (use.keys.find('*') == std::string_view::npos) CHECK(covered == words);
    Config usual;  // Inception-v3 on TFRecords
    usual.data.validation = {"v"};
    usual.optimizer.name = "adamw";
    Config other;
    other.model.name = "cifar10_cnn";
    other.data.format = "synthetic";
    other.data.shuffle = false;
    other.optimizer.name = "rmsprop";
    other.optimizer.weight_decay = 0;
    other.schedule.name = ScheduleKind::piecewise;
    other.checkpoint.resume = "never";
    other.checkpoint.init_from = "w";
    other.eval.every_steps = 3;
    other.comm.transport = TransportChoice::mpi;
    other.watchdog.enabled = false;
    other.log.tensorboard = false;
    Config third;
    third.model.name = "wide_mlp";
    third.data.format = "sparse_tfrecord";
    third.optimizer.name = "lars";
    third.device.kind = DeviceChoice::cpu;
    Config fourth;
    fourth.model.name = "file";
    fourth.optimizer.name = "ftrl";
    fourth.device.kind = DeviceChoice::gpu;
    Config fifth;
    fifth.optimizer.name = "sgd";
    fifth.eval.every_epochs = 0;
    fifth.graph.rewrites = false;
    int holding = 0;
    for (const Config* config : {&usual, &other, &third, &fourth, &fifth}) holding += use.holds(*config) ? 1 : 0;
    CHECK(holding > 0);
    CHECK(holding < 5);
  }
}

TEST_CASE("a model file is read where it is named, unless its contents come with the configuration") {
  ConfigSources s = sources("[model]\nname = \"file\"\nfile = \"net.toml\"\n");
  s.read_file = [](const std::string& path) { return "# the text\n# of " + path; };
  const Config config = load_config(s).config;
  CHECK(config.model.definition == "# the text\n# of /configs/net.toml");
  CHECK(config.checkpoint.directory == "/home/a/runs/net");
  CHECK(config_from_toml(to_toml(config), "itself") == config);
  s.file_text += "definition = \"another\"\n";
  CHECK(load_config(s).config.model.definition == "another");
  s.overrides = {{"model.file", "/other.toml"}};
  CHECK(load_config(s).config.model.definition == "# the text\n# of /other.toml");
  s.read_file = [](const std::string&) { return std::string(); };
  CHECK_THAT(load_error(s), ContainsSubstring("/other.toml: this model file is empty"));
  CHECK_THAT(load_error(sources("[model]\nname = \"file\"\n")), ContainsSubstring("needs model.file"));
}

TEST_CASE("classes and image size come from the model file unless they are given") {
  ConfigSources s = sources("[model]\nname = \"file\"\nfile = \"net.toml\"\n");
  s.read_file = [](const std::string&) { return std::string("classes = 7\nimage_size = 48\nlayer = []\n"); };
  LoadedConfig loaded = load_config(s);
  CHECK(loaded.config.model.classes == 7);
  CHECK(loaded.config.model.image_size == 48);
  CHECK(loaded.origin.at("model.classes") == "/configs/net.toml");
  CHECK(loaded.replaced.empty());
  s.overrides = {{"model.classes", "5"}, {"model.image_size", "48"}};
  loaded = load_config(s);
  CHECK(loaded.config.model.classes == 5);
  CHECK(loaded.replaced ==
        std::vector<std::string>{"model.classes = 5 (command line) takes the place of 7 in /configs/net.toml"});
  s.read_file = [](const std::string&) { return std::string("classes = \"7\"\n"); };
  CHECK_THAT(load_error(s), ContainsSubstring("/configs/net.toml:1: model.classes takes an integer, not the string"));
  s.read_file = [](const std::string&) { return std::string("\nclasses = 0\n"); };
  CHECK_THAT(load_error(s), ContainsSubstring("/configs/net.toml:2: model.classes"));
}
