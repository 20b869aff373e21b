// What is known of each model before it is built: its kind of input, its limits, and the values of its publication.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

// The default of one key, written as on the command line.
struct ModelDefault {
  std::string_view key;  // "section.key"
  std::string_view value;
};

// Zero means that there is no such limit, or that the model has no such part.
struct ModelInfo {
  std::string_view name;    // model.name
  std::string_view recipe;  // in models/recipes, without .toml: with model.name, it trains this model; empty: none
  std::span<const ModelDefault> defaults;  // those that differ from the built-in ones; from the recipe
  bool sparse = false;                     // takes sparse samples instead of images
  int64_t smallest_image = 1;              // pixels; below it, the last feature maps are empty
  int64_t published_image = 0;             // pixels; if weights for other sizes are unusual
  int64_t auxiliary_image = 0;             // pixels that its auxiliary head needs at least
  bool batch_norm = false;                 // may have batch normalization
  double norm_epsilon = 0;                 // of batch normalization in the published weights
  std::string_view benchmark_image, benchmark_classes, benchmark_batch;  // empty: not in benchmark mode
};

// In the order in which manuals and messages list them.
std::span<const ModelInfo> model_infos();
// Throws InternalError on an unknown name: a loaded Config has only known ones.
const ModelInfo& model_info(std::string_view name);
std::vector<std::string_view> model_names();

}  // namespace lockstep
