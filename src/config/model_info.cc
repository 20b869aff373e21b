#include "lockstep/config/model_info.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// From torchvision's training reference for ResNets.
constexpr ModelDefault kResnet[] = {
    {"model.image_size", "224"},
    {"model.dropout", "0"},
    {"model.bn_epsilon", "1e-5"},
    {"data.augment", "torchvision"},
    {"data.normalize", "torchvision"},
    {"train.label_smoothing", "0"},
    {"optimizer.name", "sgd"},
    {"optimizer.lr", "0.1"},
    {"optimizer.scale_lr", "true"},
    {"optimizer.weight_decay", "1e-4"},
    {"optimizer.decay_norm_and_bias", "true"},
    {"schedule.name", "step"},
    {"schedule.warmup_epochs", "5"},
    {"schedule.decay_rate", "0.1"},
    {"schedule.decay_epochs", "30"},
    {"ema.decay", "0"},
};

constexpr ModelDefault kCifar10Cnn[] = {
    {"model.image_size", "32"},    {"model.dropout", "0"},
    {"data.augment", "crop_flip"}, {"train.label_smoothing", "0"},
    {"optimizer.name", "adamw"},   {"optimizer.lr", "2e-3"},
    {"optimizer.epsilon", "1e-8"}, {"optimizer.weight_decay", "0.02"},
    {"schedule.name", "cosine"},   {"schedule.warmup_epochs", "0.5"},
    {"ema.decay", "0.99"},
};

constexpr ModelDefault kWideMlp[] = {
    {"model.dropout", "0"},
    {"data.augment", "none"},
    {"data.normalize", "none"},
    {"train.label_smoothing", "0"},
    {"optimizer.name", "ftrl"},
    {"optimizer.lr", "0.02"},
    {"optimizer.initial_accumulator", "1e-6"},
    {"optimizer.weight_decay", "0"},
    {"schedule.name", "constant"},
    {"ema.decay", "0"},
};

// For networks about which nothing is known.
constexpr ModelDefault kFile[] = {
    {"model.image_size", "224"},
    {"model.dropout", "0"},
    {"model.bn_epsilon", "1e-5"},
    {"data.augment", "torchvision"},
    {"data.normalize", "torchvision"},
    {"train.label_smoothing", "0"},
    {"optimizer.name", "adamw"},
    {"optimizer.lr", "1e-3"},
    {"optimizer.epsilon", "1e-8"},
    {"optimizer.weight_decay", "0.02"},
    {"schedule.name", "cosine"},
    {"schedule.warmup_epochs", "0.5"},
    {"ema.decay", "0"},
};

constexpr ModelInfo resnet(std::string_view name, std::string_view benchmark_batch) {
  return {.name = name,
          .recipe = "resnet50_imagenet",
          .defaults = kResnet,
          .batch_norm = true,
          .norm_epsilon = 1e-5,
          .benchmark_image = "224",
          .benchmark_classes = "1001",
          .benchmark_batch = benchmark_batch};
}

// Inception-v3's values are the built-in defaults. Batch sizes of benchmarks are those of tf_cnn_benchmarks if it has
// the model; its ImageNet has a background class.
constexpr ModelInfo kModels[] = {
    {.name = "inception_v3",
     .recipe = "inception_v3_imagenet",
     .defaults = {},
     .smallest_image = 75,
     .published_image = 299,
     .auxiliary_image = 299,
     .batch_norm = true,
     .norm_epsilon = 1e-3,
     .benchmark_image = "299",
     .benchmark_classes = "1001",
     .benchmark_batch = "32"},
    {.name = "cifar10_cnn",
     .recipe = "cifar10_cnn",
     .defaults = kCifar10Cnn,
     .benchmark_image = "32",
     .benchmark_classes = "10",
     .benchmark_batch = "128"},
    resnet("resnet18", "64"),
    resnet("resnet34", "64"),
    resnet("resnet50", "64"),
    resnet("resnet101", "32"),
    resnet("resnet152", "32"),
    {.name = "wide_mlp", .recipe = "a8a_mlp", .defaults = kWideMlp, .sparse = true},
    {.name = "file", .recipe = {}, .defaults = kFile, .batch_norm = true},
};

}  // namespace

std::span<const ModelInfo> model_infos() { return kModels; }

const ModelInfo& model_info(std::string_view name) {
  const auto* const found = std::ranges::find(kModels, name, &ModelInfo::name);
  require(found != std::end(kModels), "model \"{}\" is not in the table", name);
  return *found;
}

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const ModelInfo& model : kModels) names.push_back(model.name);
  return names;
}

}  // namespace lockstep
