#include "lockstep/config/sources.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/config/keys.h"
#include "lockstep/config/model_info.h"
#include "test/catch.h"
#include "test/config/config_error.h"
#include "test/scratch.h"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {

// Writes the file and returns its path.
std::string written(const ScratchDirectory& directory, const std::string& name, const std::string& text) {
  write_file(directory / name, text);
  return directory / name;
}

}  // namespace

TEST_CASE("a recipe is found by its name, in the first directory that has it") {
  const ScratchDirectory directory;
  const std::string first = written(directory, "a/net.toml", "");
  written(directory, "b/net.toml", "");
  const std::string second = written(directory, "b/other.toml", "");
  const std::vector<std::string> directories = {directory / "none", directory / "a", directory / "b"};
  CHECK(find_config_file("net", directories) == first);
  CHECK(find_config_file("other", directories) == second);
  CHECK(recipe_names(directories) == std::vector<std::string>{"net", "other"});
}

TEST_CASE("a name with a slash or .toml is a path even where a recipe has the same name") {
  const ScratchDirectory directory;
  written(directory, "a/net.toml", "");
  const std::vector<std::string> directories = {directory / "a"};
  CHECK(find_config_file("net.toml", directories) == (fs::current_path() / "net.toml").string());
  CHECK(find_config_file("./net", directories) == (fs::current_path() / "net").string());
  CHECK(find_config_file("/x/../y/net", directories) == "/y/net");
}

TEST_CASE("a name that is neither recipe nor file lists the recipes and suggests the nearest") {
  const ScratchDirectory directory;
  written(directory, "a/digits.toml", "");
  written(directory, "a/other.toml", "");
  const std::string message = config_error([&] { find_config_file("digit", {directory / "a"}); });
  CHECK(message ==
        "--config 'digit': no recipe of that name, and no file; did you mean digits?; recipes: digits, other");
  // A program that was copied without them.
  const std::string without = config_error([&] { find_config_file("digits", {directory / "b"}); });
  CHECK(without == "--config 'digits': no file of that name, and there are no recipes in " + directory / "b" +
                       ", where this program looks for them: give --config the path of a file, or start the program "
                       "where it was installed, with its share/lockstep");
}

TEST_CASE("file, environment and working directory are gathered") {
  const ScratchDirectory directory;
  const std::string path = written(directory, "c.toml", "[train]\r\nseed = 3\n");
  ::setenv("LOCKSTEP_TEST_OF_GATHERING", "a=b", 1);
  const ConfigSources sources = gather_config_sources(path, {{"train.seed", "4"}});
  ::unsetenv("LOCKSTEP_TEST_OF_GATHERING");
  CHECK(sources.file_path == path);
  CHECK(sources.file_text == "[train]\r\nseed = 3\n");
  CHECK(sources.working_directory == fs::current_path().string());
  REQUIRE(sources.overrides.size() == 1);
  const auto variable =
      std::ranges::find(sources.environment, std::string("LOCKSTEP_TEST_OF_GATHERING"), &Assignment::name);
  REQUIRE(variable != sources.environment.end());
  CHECK(variable->value == "a=b");
}

TEST_CASE("a configuration from a pipe is read to its end, and its relative paths start in the working directory") {
  const ScratchDirectory directory;
  const std::string pipe = directory / "c.toml";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(pipe) << "data.train = \"t\"\n[train]\nseed = 3\n"; });
  ConfigSources sources = gather_config_sources(pipe, {});
  writer.join();
  sources.environment.clear();
  const LoadedConfig loaded = load_config(sources);
  CHECK(loaded.config.train.seed == 3);
  CHECK(loaded.config.data.train == std::vector<std::string>{(fs::current_path() / "t").string()});
  CHECK(loaded.warnings.empty());
}

TEST_CASE("a configuration that sets nothing is worth a warning that names it") {
  const ScratchDirectory directory;
  for (const char* text : {"", "# [train]\n", "[train]\n"}) {
    ConfigSources sources = gather_config_sources(written(directory, "c.toml", text), {{"data.train", "t"}});
    sources.environment.clear();
    CHECK(load_config(sources).warnings == std::vector<std::string>{directory / "c.toml: this configuration is empty"});
  }
}

TEST_CASE("a file that is not there and a directory in its place are errors with the reason") {
  const ScratchDirectory directory;
  const auto reason = [&](const char* name) {
    return config_error([&] { gather_config_sources(directory / name, {}); });
  };
  CHECK_THAT(reason("none.toml"),
             ContainsSubstring(directory / "none.toml") && ContainsSubstring("No such file or directory"));
  fs::create_directory(directory / "dir.toml");
  CHECK_THAT(reason("dir.toml"), ContainsSubstring(directory / "dir.toml") && ContainsSubstring("Is a directory"));
}

TEST_CASE("every bundled recipe is valid once it has data, and digits has them") {
  const std::vector<std::string> names = recipe_names(recipe_directories());
  CHECK(std::ranges::find(names, std::string("digits")) != names.end());
  for (const std::string& name : names) {
    INFO(name);
    ConfigSources sources = gather_config_sources(name, {});
    sources.environment.clear();
    if (name != "digits") sources.overrides = {{"data.train", "train-*"}, {"data.validation", "validation-*"}};
    CHECK_NOTHROW(load_config(sources));
  }
}

TEST_CASE("the recipe of every model trains it") {
  for (const ModelInfo& info : model_infos()) {
    if (info.name == "file") continue;
    INFO(info.name);
    ConfigSources sources = gather_config_sources(std::string(info.recipe), {});
    sources.environment.clear();
    sources.overrides = {{"data.train", "train-*"}, {"data.validation", "validation-*"}};
    CHECK(model_info(load_config(sources).config.model.name).defaults.data() == info.defaults.data());
    sources.overrides.push_back({"model.name", std::string(info.name)});
    const Config config = load_config(sources).config;
    CHECK(config.model.name == info.name);
    const Config plain =
        load_config({.overrides = {{"model.name", config.model.name}, {"data.format", "synthetic"}}}).config;
    for (const auto& [key, value] : info.defaults) {
      INFO(key);
      const auto& member = find_config_key(key)->member;
      CHECK((member.get(config) == member.get(plain)));
    }
  }
}

TEST_CASE("the digits recipe reads the data beside it wherever it is started") {
  ConfigSources sources = gather_config_sources("digits", {});
  sources.environment.clear();
  sources.working_directory = "/elsewhere";
  const Config config = load_config(sources).config;
  CHECK(config.data.train == std::vector<std::string>{LOCKSTEP_SOURCE_DIRECTORY "/data/digits/train.tfrecord"});
  CHECK(config.data.validation ==
        std::vector<std::string>{LOCKSTEP_SOURCE_DIRECTORY "/data/digits/validation.tfrecord"});
  CHECK(config.checkpoint.directory == "/elsewhere/runs/digits");
}
