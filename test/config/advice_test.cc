#include "lockstep/config/advice.h"

#include "lockstep/config/load.h"
#include "lockstep/config/sources.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

constexpr int64_t kBatch = 256;

Config recipe(const std::string& name) {
  return load_config(gather_config_sources(name, {{.name = "data.train", .value = "train"}})).config;
}

// The only advice on this configuration.
std::string advice(const Config& config, int64_t global_batch = kBatch) {
  const auto all = unusual_choices(config, global_batch);
  REQUIRE(all.size() == 1);
  return all[0];
}

}  // namespace

TEST_CASE("the bundled recipes of published models are not unusual") {
  for (const char* name : {"inception_v3_imagenet", "resnet50_imagenet", "cifar10_cnn"}) {
    INFO(name);
    CHECK(unusual_choices(recipe(name), kBatch).empty());
  }
}

TEST_CASE("what is unlike every recipe is named with its key") {
  Config config = recipe("inception_v3_imagenet");
  config.optimizer.epsilon = 1e-8;
  CHECK_THAT(advice(config), ContainsSubstring("optimizer.epsilon = 1e-08"));
  config = recipe("inception_v3_imagenet");
  config.model.aux_weight = 0;
  CHECK_THAT(advice(config), ContainsSubstring("model.aux_weight"));
  config = recipe("inception_v3_imagenet");
  config.model.classes = 1000;
  config.data.label_offset = 0;
  CHECK_THAT(advice(config), ContainsSubstring("data.label_offset"));
  config = recipe("resnet50_imagenet");
  config.model.bn_epsilon = 1e-3;
  CHECK_THAT(advice(config), ContainsSubstring("model.bn_epsilon = 0.001"));
  config = recipe("resnet50_imagenet");
  config.schedule.warmup_epochs = 0;
  CHECK_THAT(advice(config, 8192), ContainsSubstring("schedule.warmup_epochs"));
  config = recipe("cifar10_cnn");
  config.optimizer.epsilon = 1;
  CHECK_THAT(advice(config), ContainsSubstring("optimizer.epsilon = 1: a value for rmsprop_tf"));
  config = recipe("a8a_mlp");
  config.optimizer.initial_accumulator = 0.1;
  CHECK_THAT(advice(config), ContainsSubstring("optimizer.initial_accumulator = 0.1"));
  config = recipe("cifar10_cnn");
  config.data.augment = "none";
  CHECK_THAT(advice(config), ContainsSubstring("data.augment"));
  config = recipe("cifar10_cnn");
  config.data.shuffle = false;
  CHECK_THAT(advice(config), ContainsSubstring("data.shuffle"));
}
