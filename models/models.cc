#include "lockstep/models/models.h"

#include "lockstep/base/error.h"

namespace lockstep {

std::span<const Model> models() {
  static constexpr Model kTable[] = {
      {"inception_v3", build_inception_v3},
      {"cifar10_cnn", build_cifar10_cnn},
      {"resnet18", [](ModelBuilder& b) { build_resnet(b, 18); }},
      {"resnet34", [](ModelBuilder& b) { build_resnet(b, 34); }},
      {"resnet50", [](ModelBuilder& b) { build_resnet(b, 50); }},
      {"resnet101", [](ModelBuilder& b) { build_resnet(b, 101); }},
      {"resnet152", [](ModelBuilder& b) { build_resnet(b, 152); }},
      {"wide_mlp", build_wide_mlp},
  };
  return kTable;
}

Graph build_model(std::string_view name, const ModelOptions& options) {
  ModelBuilder builder(options);
  if (name == kModelFile) {
    build_model_file(builder);
    return std::move(builder).finish();
  }
  std::string known;
  for (const Model& model : models()) {
    if (model.name == name) {
      model.build(builder);
      return std::move(builder).finish();
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", model.name);
  }
  fail(ExitCode::config, "model.name = \"{}\" is not a model; there are {}, {}", name, known, kModelFile);
}

}  // namespace lockstep
