#include "lockstep/train/config_load.h"

#include "test/catch.h"
#include "test/train/config_error.h"

using namespace lockstep;

namespace {

// A file with the training data that validate() asks for, and what else is given.
ConfigSources sources(const std::string& text) {
  return {.file_path = "/configs/c.toml", .file_text = "data.train = \"t\"\n" + text, .working_folder = "/home/a"};
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
      load_config({.overrides = {{"data.format", "synthetic"}, {"train.steps", "1"}}, .working_folder = "/home/a"});
  CHECK(loaded.config.data.format == "synthetic");
  CHECK(loaded.config.checkpoint.directory == "/home/a/runs/inception_v3");
}

TEST_CASE("inputs in the file are relative to it, outputs and the command line to the working folder") {
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

TEST_CASE("the same file loaded from another folder names the same inputs") {
  ConfigSources here = sources("checkpoint.directory = \"/runs/a\"\n");
  ConfigSources there = here;
  there.working_folder = std::string("/");
  CHECK(load_config(here).config == load_config(there).config);
}

TEST_CASE("the default checkpoint folder bears the model's name") {
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

TEST_CASE("a working folder that TOML cannot hold is an error where it is needed") {
  ConfigSources s = sources("");
  s.working_folder = std::string("/home/a\xff");
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

TEST_CASE("batch_size and global_batch together are an error that names both places") {
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
