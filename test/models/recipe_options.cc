#include "test/models/recipe_options.h"

#include <stdexcept>

namespace lockstep::test {

std::string_view recipe_of(std::string_view model) {
  if (model == "inception_v3") return "inception_v3_imagenet";
  if (model.starts_with("resnet")) return "resnet50_imagenet";
  if (model == "cifar10_cnn") return "cifar10_cnn";
  if (model == "wide_mlp") return "a8a_mlp";
  throw std::out_of_range("no recipe trains this model");
}

ModelOptions recipe_options(std::string_view model, int64_t batch) {
  const std::string_view recipe = recipe_of(model);
  ModelOptions options{.batch_size = batch, .training = true};
  if (recipe == "inception_v3_imagenet") {
    options.image_size = 299;
    options.aux_weight = 0.4;
    options.dropout = 0.2;
    options.label_smoothing = 0.1;
    options.bn_scale = false;
  } else if (recipe == "resnet50_imagenet") {
    options.image_size = 224;
    options.bn_epsilon = 1e-5;
  } else if (recipe == "cifar10_cnn") {
    options.image_size = 32;
    options.classes = 10;
  } else {
    options.classes = 2;
    options.hidden = {10, 10, 10, 10};
    options.vocabulary = 124;
    options.max_ids = 16;
  }
  return options;
}

PreparePixels recipe_pixels(std::string_view model) {
  return {.changes = true, .distort = recipe_of(model) == "inception_v3_imagenet"};
}

}  // namespace lockstep::test
