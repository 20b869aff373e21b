#include "lockstep/config/keys.h"

#include <algorithm>
#include <set>

#include "lockstep/backend/update.h"
#include "lockstep/config/value.h"
#include "lockstep/data/source/formats.h"
#include "lockstep/models/models.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("every key is there once, has a meaning, and its sections stand together") {
  std::set<std::string> names, variables;
  for (const ConfigKey& key : config_keys()) {
    INFO(key.full_name());
    CHECK(names.insert(key.full_name()).second);
    CHECK(variables.insert(key.environment_variable()).second);
    CHECK(key.meaning.ends_with('.'));
    CHECK(find_config_key(key.full_name()) == &key);
  }
  const std::vector<std::string_view> sections = config_sections();
  CHECK(std::set(sections.begin(), sections.end()).size() == sections.size());
  CHECK(sections.size() == 13);
}

TEST_CASE("every default is of the key's type and in its range") {
  for (const ConfigKey& key : config_keys()) {
    INFO(key.full_name());
    const ConfigValue value = key.member.get(Config{});
    CHECK(static_cast<ConfigType>(value.index()) == key.member.type);
    CHECK_NOTHROW(check_config_value(key, value, "default"));
  }
}

TEST_CASE("every data format there is can be chosen") {
  CHECK(find_config_key("data.format")->allowed == data_format_names());
}

TEST_CASE("every model there is can be chosen") {
  std::vector<std::string_view> names;
  for (const Model& model : models()) names.push_back(model.name);
  names.push_back(kModelFile);
  CHECK(find_config_key("model.name")->allowed == names);
}

TEST_CASE("every optimizer there is can be chosen") {
  std::vector<std::string_view> names;
  for (const OptimizerSlots& optimizer : optimizers()) names.push_back(optimizer.name);
  CHECK(find_config_key("optimizer.name")->allowed == names);
}

TEST_CASE("the variable of a key is its name in capitals") {
  CHECK(find_config_key("train.seed")->environment_variable() == "LOCKSTEP_TRAIN_SEED");
  CHECK(find_config_key("watchdog.save_abort_seconds")->environment_variable() ==
        "LOCKSTEP_WATCHDOG_SAVE_ABORT_SECONDS");
}

TEST_CASE("names that are no keys are not found") {
  for (const char* name : {"", ".", "train", "train.", ".seed", "train.seed.x", "model.seed", "Train.seed"}) {
    INFO(name);
    CHECK(find_config_key(name) == nullptr);
  }
}

TEST_CASE("a range prints its ends") {
  CHECK(ConfigRange{.low = 1}.text() == "at least 1");
  CHECK(ConfigRange{.low = 0, .low_open = true}.text() == "above 0");
  CHECK(ConfigRange{.low = 0, .high = 1, .high_open = true}.text() == "in [0, 1)");
  CHECK_FALSE(ConfigRange{}.limited());
}

TEST_CASE("the words of a key are those of its enum, and stand for its values") {
  const ConfigKey& key = *find_config_key("train.precision");
  CHECK(key.allowed == std::vector<std::string_view>{"float32", "tf32", "bf16", "fp16"});
  Config config;
  for (const std::string_view text : key.allowed) {
    key.member.set(config, std::string(text));
    CHECK(word(config.train.precision) == text);
    CHECK(std::get<std::string>(key.member.get(config)) == text);
  }
  CHECK(config.train.precision == Precision::fp16);
  CHECK(find_word<Precision>("half") == std::nullopt);
}
