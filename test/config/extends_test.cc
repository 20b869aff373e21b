// Configuration files that extend others, and the text from which a configuration is loaded again.
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/config/load.h"
#include "test/catch.h"
#include "test/config/config_error.h"

using namespace lockstep;

namespace {

std::map<std::string, std::string> files;  // by path, in place of a disk

ConfigFile open_extended(const std::string& name, const std::string& directory) {
  const std::string path = name.find('/') == 0 ? name : directory + "/" + name;
  const auto found = files.find(path);
  if (found == files.end()) fail(ExitCode::config, "{}: No such file or directory", path);
  return {.path = path, .text = found->second, .directory = {}};
}

ConfigSources sources(const std::string& text) {
  return {.file_path = "/c/a.toml", .file_text = text, .open_extended = open_extended, .working_directory = "/w"};
}

std::string load_error(const std::string& text) {
  return config_error([&] { load_config(sources(text)); });
}

}  // namespace

TEST_CASE("a file that extends another has its own settings first, and the other's where it has none") {
  files = {{"/d/base.toml", "extends = \"root.toml\"\n[data]\ntrain = \"t\"\n[train]\nseed = 2\nsteps = 20\n"},
           {"/d/root.toml", "[train]\nseed = 1\nsteps = 10\nepochs = 4\n"}};
  ConfigSources s = sources("extends = \"/d/base.toml\"\n[train]\nseed = 3\n");
  LoadedConfig loaded = load_config(s);
  CHECK(loaded.config.train.seed == 3);
  CHECK(loaded.config.train.steps == 20);
  CHECK(loaded.config.train.epochs == 4);
  CHECK(loaded.config.data.train == std::vector<std::string>{"/d/t"});
  CHECK(loaded.origin.at("train.seed") == "/c/a.toml:3");
  CHECK(loaded.origin.at("train.steps") == "/d/base.toml:6");
  CHECK(loaded.origin.at("train.epochs") == "/d/root.toml:4");
  CHECK(loaded.warnings.empty());
  s.environment = {{"LOCKSTEP_TRAIN_STEPS", "30"}};
  CHECK(load_config(s).config.train.steps == 30);
}

TEST_CASE("a file that chooses one batch size takes back the other one of the file that it extends") {
  files = {{"/c/base.toml", "data.train = \"t\"\ntrain.batch_size = 8\n"},
           {"/c/global.toml", "data.train = \"t\"\ntrain.global_batch = 64\n"}};
  CHECK(load_config(sources("extends = \"base.toml\"\ntrain.global_batch = 32\n")).config.train.global_batch == 32);
  const Config config = load_config(sources("extends = \"global.toml\"\ntrain.batch_size = 4\n")).config;
  CHECK(config.train.global_batch == 0);
  CHECK(config.train.batch_size == 4);
}

TEST_CASE("a chain of files that never ends, or is long, is an error that names it") {
  files = {{"/c/b.toml", "extends = \"a.toml\"\n"}};
  files["/c/a.toml"] = "extends = \"b.toml\"\n";
  CHECK(load_error("extends = \"b.toml\"\n") ==
        "/c/b.toml:1: extends = 'a.toml': the files extend each other: /c/a.toml -> /c/b.toml -> /c/a.toml");
  CHECK_THAT(load_error("extends = \"/c/a.toml\"\n"), ContainsSubstring("the files extend each other"));
  for (int i = 0; i < 20; ++i) {
    files["/c/" + std::to_string(i) + ".toml"] = "extends = \"" + std::to_string(i + 1) + ".toml\"\n";
  }
  CHECK_THAT(load_error("extends = \"0.toml\"\n"), ContainsSubstring("more than 8 files extend one another"));
}

TEST_CASE("what cannot be extended is an error with file and line") {
  files.clear();
  CHECK(load_error("extends = \"none.toml\"\n") ==
        "/c/a.toml:1: extends = 'none.toml': /c/none.toml: No such file or directory");
  CHECK_THAT(load_error("extends = 3\n"), ContainsSubstring("/c/a.toml:1: extends takes the path of a file"));
  CHECK_THAT(load_error("extends = \"\"\n"), ContainsSubstring("not the string ''"));
  CHECK_THAT(load_error("[train]\nextends = \"b\"\n"), ContainsSubstring("unknown key 'extends' in section [train]"));
  CHECK_THAT(config_error([] { config_from_toml("extends = \"b\"\n", "text"); }),
             ContainsSubstring("stands outside every section"));
}

TEST_CASE("the dumped text gives the same configuration and no remark") {
  files = {{"/d/base.toml", "[data]\ntrain = \"t{a,b}*\"\n[train]\nglobal_batch = 64\n"}};
  const std::vector<std::string> texts = {
      "extends = \"/d/base.toml\"\n",
      "extends = \"/d/base.toml\"\n[model]\nname = \"cifar10_cnn\"\n[checkpoint]\ndirectory = \"{model}/{time}\"\n",
      "extends = \"/d/base.toml\"\n[model]\nname = \"resnet50\"\n[optimizer]\nname = \"adamw\"\nmomentum = 0.5\n",
      "extends = \"/d/base.toml\"\n[model]\nname = \"file\"\ndefinition = \"x\"\n"};
  for (const std::string& text : texts) {
    ConfigSources s = sources(text);
    s.overrides = {{"train.seed", "7"}};
    const LoadedConfig loaded = load_config(s);
    ConfigSources again = sources(to_loadable_toml(loaded));
    again.working_directory = std::string("/elsewhere");
    const LoadedConfig reloaded = load_config(again);
    INFO(to_loadable_toml(loaded));
    CHECK(reloaded.config == loaded.config);
    CHECK(settings_without_effect(reloaded).size() == settings_without_effect(loaded).size());
    CHECK_THAT(to_loadable_toml(loaded), ContainsSubstring("seed = 7  # command line\n"));
  }
}
