#include <fstream>
#include <iterator>

#include "lockstep/config/keys.h"
#include "lockstep/config/load.h"
#include "test/catch.h"
#include "test/config/config_error.h"

using namespace lockstep;

namespace {

// A value of the key's type that is not the default and that TOML has to escape or print with care.
ConfigValue other_value(const ConfigKey& key) {
  const ConfigValue value = key.member.get(Config{});
  switch (key.member.type) {
    case ConfigType::boolean:
      return key.allowed.empty() ? !std::get<bool>(value) : std::get<bool>(value);
    case ConfigType::integer:
      return std::get<int64_t>(value) + (key.range.high > static_cast<double>(std::get<int64_t>(value)) ? 1 : 0);
    case ConfigType::number:
      return std::get<double>(value) / 3 + 1.0 / 7;
    case ConfigType::text:
      return key.allowed.empty() ? "a \"quoted\" \\ \t\x01 #ü" : std::string(key.allowed.back());
    case ConfigType::text_list:
      return std::vector<std::string>{"/a,b", "/c 'd' *", ""};
    case ConfigType::integer_list:
      return std::vector<int64_t>{3, 2, 1};
    case ConfigType::number_list:
      return std::vector<double>{1e-7, 3, 1.0 / 3};
  }
  return value;
}

}  // namespace

TEST_CASE("the defaults come back from their TOML text") {
  CHECK(config_from_toml(to_toml(Config{}), "checkpoint") == Config{});
}

TEST_CASE("every key comes back from the TOML text with its exact value") {
  Config config;
  for (const ConfigKey& key : config_keys()) {
    Config one;
    key.member.set(one, other_value(key));
    key.member.set(config, other_value(key));
    INFO(key.full_name());
    CHECK(config_from_toml(to_toml(one), "checkpoint") == one);
  }
  CHECK(config != Config{});
  CHECK(config_from_toml(to_toml(config), "checkpoint") == config);
}

TEST_CASE("text of another version fails with its name and line") {
  CHECK(config_error([] { config_from_toml("[train]\nwarp = 9\n", "step-00000010.h5/config"); }) ==
        "step-00000010.h5/config:2: unknown key 'warp' in section [train]");
}

TEST_CASE("the text for people says where each value comes from and parses all the same") {
  const LoadedConfig loaded = load_config({.file_path = "/c/a.toml",
                                           .file_text = "data.train = \"t\"\n",
                                           .overrides = {{"train.seed", "7"}},
                                           .working_directory = "/w"});
  const std::string text = to_toml(loaded);
  CHECK_THAT(text, ContainsSubstring("\nseed = 7  # command line\n"));
  CHECK_THAT(text, ContainsSubstring("\ntrain = [\"/c/t\"]  # /c/a.toml:1\n"));
  CHECK_THAT(text, ContainsSubstring("\nsteps = 0\n"));
  CHECK(config_from_toml(text, "text") == loaded.config);
}

TEST_CASE("docs/configuration.md is what lockstep_config_reference prints") {
  std::ifstream in(LOCKSTEP_SOURCE_DIRECTORY "/docs/configuration.md", std::ios::binary);
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  CHECK(page == config_reference());
}

TEST_CASE("the reference has a row for every key") {
  const std::string page = config_reference();
  for (const ConfigKey& key : config_keys()) {
    INFO(key.full_name());
    CHECK_THAT(page, ContainsSubstring("| `" + std::string(key.name) + "` | "));
  }
}
