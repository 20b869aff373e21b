// The table of models: a name and the function that builds it.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/graph/model_builder.h"

namespace lockstep {

struct Model {
  std::string_view name;  // model.name
  void (*build)(ModelBuilder&);
};

inline constexpr std::string_view kModelFile = "file";  // the model.name that stands for the network of model.file

std::span<const Model> models();

// Builds the model of this name, or that of a model file if the name is "file". Throws Error(config) on an unknown
// name, or when the image is too small for its structure.
Graph build_model(std::string_view name, const ModelOptions& options);

// The pooling branch of Mixed_7c averages, as in torchvision and TensorFlow's slim; options().mixed_7c_max_pool makes
// it take the maximum, as tf_cnn_benchmarks does.
void build_inception_v3(ModelBuilder& b);
void build_cifar10_cnn(ModelBuilder& b);
void build_resnet(ModelBuilder& b, int depth);  // 18, 34, 50, 101 or 152
void build_wide_mlp(ModelBuilder& b);

// The network that options().definition defines (docs/model_files.md). Errors name the file, line and layer.
void build_model_file(ModelBuilder& b);

}  // namespace lockstep
