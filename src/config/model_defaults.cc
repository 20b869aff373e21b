#include "config/model_defaults.h"

namespace lockstep {
namespace {

// From torchvision's training reference for ResNet-50.
constexpr ModelDefault kResnet50[] = {
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

// For networks of which nothing is known.
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

}  // namespace

std::span<const ModelDefault> model_defaults(std::string_view model) {
  if (model == "resnet50") return kResnet50;
  if (model == "cifar10_cnn") return kCifar10Cnn;
  if (model == "wide_mlp") return kWideMlp;
  if (model == "file") return kFile;
  return {};
}

}  // namespace lockstep
