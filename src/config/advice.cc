#include "lockstep/config/advice.h"

#include <fmt/format.h>

#include "lockstep/config/model_info.h"

namespace lockstep {
namespace {

constexpr double kPublishedEpsilon = 1.0;  // from TensorFlow's RMSProp recipe
constexpr double kLargeAccumulator = 1e-3;
constexpr int64_t kLargeBatch = 2048;
constexpr int64_t kImagenetClasses = 1000;

void advise_on_model(const Config& config, std::vector<std::string>& out) {
  const Config::Model& model = config.model;
  const ModelInfo& info = model_info(model.name);
  if (info.published_image > 0 && model.image_size != info.published_image) {
    out.push_back(fmt::format("model.image_size = {}: {} was published for {}", model.image_size, info.name,
                              info.published_image));
  }
  if (info.auxiliary_image > 0 && model.aux_weight == 0 && model.image_size >= info.auxiliary_image) {
    out.push_back(
        fmt::format("model.aux_weight = 0: recipes train {} with its auxiliary head at 0.3 to 0.4", info.name));
  }
  if (info.norm_epsilon > 0 && model.bn_epsilon != info.norm_epsilon) {
    out.push_back(fmt::format("model.bn_epsilon = {}: published weights of {} were trained with {}", model.bn_epsilon,
                              info.name, info.norm_epsilon));
  }
}

void advise_on_data(const Config& config, std::vector<std::string>& out) {
  if (config.data.format == "tfrecord" && config.model.classes == kImagenetClasses && config.data.label_offset == 0) {
    out.push_back("data.label_offset = 0 with 1000 classes: ImageNet's TFRecords hold labels 1 to 1000, which want -1");
  }
  const bool stored_images = config.data.format != "synthetic" && config.data.format != "sparse_tfrecord";
  if (config.data.augment == "none" && stored_images && config.train.epochs > 1) {
    out.push_back("data.augment = \"none\": a network soon knows images by heart that never change");
  }
  if (!config.data.shuffle) {
    out.push_back("data.shuffle = false: files sorted by class give batches of one class");
  }
}

void advise_on_optimizer(const Config& config, int64_t global_batch, std::vector<std::string>& out) {
  const Config::Optimizer& optimizer = config.optimizer;
  if (optimizer.name == "rmsprop_tf" && optimizer.epsilon < kPublishedEpsilon) {
    out.push_back(fmt::format(
        "optimizer.epsilon = {}: TensorFlow's recipe has 1.0, inside the root; small ones make steps many times longer",
        optimizer.epsilon));
  }
  if ((optimizer.name == "adam" || optimizer.name == "adamw") && optimizer.epsilon >= kPublishedEpsilon) {
    out.push_back(
        fmt::format("optimizer.epsilon = {}: a value for rmsprop_tf; recipes of Adam have 1e-8", optimizer.epsilon));
  }
  if (optimizer.name == "ftrl" && optimizer.initial_accumulator >= kLargeAccumulator) {
    out.push_back(
        fmt::format("optimizer.initial_accumulator = {}: FTRL's first step brings weights whose gradients are "
                    "small beside its root to 0, and hidden layers stay there; 1e-6 keeps them",
                    optimizer.initial_accumulator));
  }
  if (global_batch > kLargeBatch && config.schedule.warmup_epochs == 0 && optimizer.name == "sgd") {
    out.push_back(
        fmt::format("schedule.warmup_epochs = 0: recipes warm SGD up for 5 epochs with batches like {}", global_batch));
  }
}

}  // namespace

std::vector<std::string> unusual_choices(const Config& config, int64_t global_batch) {
  std::vector<std::string> out;
  advise_on_model(config, out);
  advise_on_data(config, out);
  advise_on_optimizer(config, global_batch, out);
  return out;
}

}  // namespace lockstep
