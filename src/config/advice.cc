#include "lockstep/config/advice.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double kPublishedEpsilon = 1.0;       // from TensorFlow's RMSProp recipe
constexpr double kInceptionNormEpsilon = 1e-3;  // from TensorFlow's and torchvision's Inception-v3
constexpr double kResnetNormEpsilon = 1e-5;     // from torchvision's ResNet-50
constexpr double kLargeAccumulator = 1e-3;
constexpr int64_t kInceptionSize = 299;
constexpr int64_t kLargeBatch = 2048;
constexpr int64_t kImagenetClasses = 1000;

void advise_on_model(const Config& config, std::vector<std::string>& out) {
  const Config::Model& model = config.model;
  const bool inception = model.name == "inception_v3";
  if (inception && model.image_size != kInceptionSize) {
    out.push_back(
        fmt::format("model.image_size = {}: inception_v3 was published for {}", model.image_size, kInceptionSize));
  }
  if (inception && model.aux_weight == 0 && model.image_size >= kInceptionSize) {
    out.push_back("model.aux_weight = 0: recipes train inception_v3 with its auxiliary head at 0.3 to 0.4");
  }
  const double usual = inception ? kInceptionNormEpsilon : kResnetNormEpsilon;
  if ((inception || model.name == "resnet50") && model.bn_epsilon != usual) {
    out.push_back(fmt::format("model.bn_epsilon = {}: published weights of {} were trained with {}", model.bn_epsilon,
                              model.name, usual));
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
