#include "lockstep/config/changes.h"

#include "lockstep/config/keys.h"
#include "lockstep/config/load.h"
#include "lockstep/io/file.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

std::vector<ConfigChange> between(const Config& before, const Config& now) {
  return config_changes(to_toml(before), "step-1.h5", now);
}

}  // namespace

TEST_CASE("every key of what is trained has a row that says what another value means") {
  const std::string source = read_text_file(LOCKSTEP_SOURCE_DIRECTORY "/src/config/changes.cc", ExitCode::internal);
  for (const ConfigKey& key : config_keys()) {
    INFO(key.full_name());
    const auto rows_with = [&](const std::string& name) {
      int count = 0;
      for (const char* before : {"\"", " "}) {
        for (const char* after : {"\"", " "}) count += source.find(before + name + after) != std::string::npos ? 1 : 0;
      }
      return count;
    };
    CHECK(rows_with(key.full_name()) + rows_with(std::string(key.section) + ".*") >= 1);
  }
}

TEST_CASE("equal configurations have no changes, and those without effect are not told") {
  const Config before;
  Config now = before;
  now.checkpoint.directory = "/elsewhere";
  now.checkpoint.keep = 9;
  now.data.train = {"/moved/train-*"};
  now.train.batch_size = 7;
  now.log.every_steps = 3;
  now.comm.bucket_mb = 1;
  CHECK(between(before, before).empty());
  CHECK(between(before, now).empty());
}

TEST_CASE("changes have both values, in the order of the keys, and what comes of them") {
  const Config before;
  Config now = before;
  now.optimizer.lr = 0.5;
  now.train.seed = 8;
  now.data.normalize = "torchvision";
  now.data.augment = "none";
  const std::vector<ConfigChange> changes = between(before, now);
  REQUIRE(changes.size() == 4);
  CHECK((changes[0].key == "data.augment" && changes[0].effect == ChangeEffect::input));
  CHECK((changes[1].key == "data.normalize" && changes[1].effect == ChangeEffect::model));
  CHECK((changes[1].before == "\"inception\"" && changes[1].now == "\"torchvision\""));
  CHECK((changes[2].key == "train.seed" && changes[2].before == "1" && changes[2].now == "8"));
  CHECK((changes[3].key == "optimizer.lr" && changes[3].effect == ChangeEffect::training));
}

TEST_CASE("keys that an older text lacks are not compared, and text that is none is an error with its place") {
  Config now;
  now.train.seed = 8;
  CHECK(config_changes("[model]\nclasses = 1000\n", "old.h5", now).empty());
  CHECK_THROWS_WITH(config_changes("[model]\nno_such_key = 1\n", "old.h5", now), ContainsSubstring("old.h5:2"));
}
