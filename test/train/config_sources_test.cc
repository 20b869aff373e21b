#include "lockstep/train/config_sources.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "test/catch.h"
#include "test/train/config_error.h"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {

// A folder of its own for one test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "lockstep-config-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()));
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("a recipe is found by its name, in the first folder that has it") {
  const TemporaryFolder folder;
  const std::string first = folder.write("a/net.toml", "");
  folder.write("b/net.toml", "");
  const std::string second = folder.write("b/other.toml", "");
  const std::vector<std::string> folders = {folder.path("none"), folder.path("a"), folder.path("b")};
  CHECK(find_config_file("net", folders) == first);
  CHECK(find_config_file("other", folders) == second);
  CHECK(recipe_names(folders) == std::vector<std::string>{"net", "other"});
}

TEST_CASE("a name with a slash or .toml is a path even where a recipe has the same name") {
  const TemporaryFolder folder;
  folder.write("a/net.toml", "");
  const std::vector<std::string> folders = {folder.path("a")};
  CHECK(find_config_file("net.toml", folders) == (fs::current_path() / "net.toml").string());
  CHECK(find_config_file("./net", folders) == (fs::current_path() / "net").string());
  CHECK(find_config_file("/x/../y/net", folders) == "/y/net");
}

TEST_CASE("a name that is neither recipe nor file lists the recipes and suggests the nearest") {
  const TemporaryFolder folder;
  folder.write("a/digits.toml", "");
  folder.write("a/other.toml", "");
  const std::string message = config_error([&] { find_config_file("digit", {folder.path("a")}); });
  CHECK(message ==
        "--config 'digit': no recipe of that name, and no file; did you mean digits?; recipes: digits, other");
}

TEST_CASE("file, environment and working folder are gathered") {
  const TemporaryFolder folder;
  const std::string path = folder.write("c.toml", "[train]\r\nseed = 3\n");
  ::setenv("LOCKSTEP_TEST_OF_GATHERING", "a=b", 1);
  const ConfigSources sources = gather_config_sources(path, {{"train.seed", "4"}});
  ::unsetenv("LOCKSTEP_TEST_OF_GATHERING");
  CHECK(sources.file_path == path);
  CHECK(sources.file_text == "[train]\r\nseed = 3\n");
  CHECK(sources.working_folder == fs::current_path().string());
  REQUIRE(sources.overrides.size() == 1);
  const auto variable =
      std::ranges::find(sources.environment, std::string("LOCKSTEP_TEST_OF_GATHERING"), &Assignment::name);
  REQUIRE(variable != sources.environment.end());
  CHECK(variable->value == "a=b");
}

TEST_CASE("a file that is not there and a folder in its place are errors with the reason") {
  const TemporaryFolder folder;
  const auto error_of = [&](const char* name) {
    return config_error([&] { gather_config_sources(folder.path(name), {}); });
  };
  CHECK_THAT(error_of("none.toml"),
             ContainsSubstring(folder.path("none.toml")) && ContainsSubstring("No such file or directory"));
  fs::create_directory(folder.path("dir.toml"));
  CHECK_THAT(error_of("dir.toml"), ContainsSubstring(folder.path("dir.toml")) && ContainsSubstring("Is a directory"));
}

TEST_CASE("every bundled recipe is valid once it has data, and digits has them") {
  const std::vector<std::string> names = recipe_names(recipe_folders());
  CHECK(std::ranges::find(names, std::string("digits")) != names.end());
  for (const std::string& name : names) {
    INFO(name);
    ConfigSources sources = gather_config_sources(name, {});
    sources.environment.clear();
    if (name != "digits") sources.overrides = {{"data.train", "train-*"}};
    CHECK_NOTHROW(load_config(sources));
  }
}

TEST_CASE("the digits recipe reads the data beside it wherever it is started") {
  ConfigSources sources = gather_config_sources("digits", {});
  sources.environment.clear();
  sources.working_folder = "/elsewhere";
  const Config config = load_config(sources).config;
  CHECK(config.data.train == std::vector<std::string>{LOCKSTEP_SOURCE_FOLDER "/data/digits/train.tfrecord"});
  CHECK(config.data.validation == std::vector<std::string>{LOCKSTEP_SOURCE_FOLDER "/data/digits/validation.tfrecord"});
  CHECK(config.checkpoint.directory == "/elsewhere/runs/digits");
}
