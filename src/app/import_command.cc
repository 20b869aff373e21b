#include <algorithm>
#include <optional>

#include "app/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/exchange/hdf5_weights.h"
#include "lockstep/exchange/safetensors.h"
#include "lockstep/io/file.h"
#include "lockstep/models/models.h"
#include "lockstep/train/config_sources.h"
#include "lockstep/train/program.h"

namespace lockstep {
namespace {

std::vector<NamedTensor> read_tensors(const std::string& path) {
  if (path.ends_with(".h5")) return read_hdf5_weights(path);
  if (!path.ends_with(".safetensors")) {
    fail(ExitCode::config, "{}: the ending must be .safetensors or .h5", path);
  }
  SafetensorsContent content = read_safetensors(path);
  if (!content.counters.empty()) {
    log_info("{}: {} counters num_batches_tracked left out, which no computation needs", path, content.counters.size());
  }
  return std::move(content.tensors);
}

const NamedTensor* find_tensor(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

Graph draw(const Config& config) { return build_model(config.model.name, model_options(config, 2, true)); }

// Whether the file's batch norms have scales that were trained: models without have ones.
bool has_scales(const std::vector<NamedTensor>& tensors, const Graph& graph) {
  return std::ranges::any_of(graph.parameters.all(), [&](const Parameter& p) {
    if (p.kind != ParameterKind::norm_scale && p.kind != ParameterKind::fixed_scale) return false;
    const NamedTensor* tensor = find_tensor(tensors, p.name);
    return tensor && std::ranges::any_of(tensor->values, [](float value) { return value != 1.0F; });
  });
}

// The bundled recipe whose model has just these names; classes, scales and auxiliary head are the file's.
std::optional<Config> recognize(const std::vector<NamedTensor>& tensors) {
  const bool has_aux = std::ranges::any_of(tensors, [](const auto& t) { return t.name.starts_with("AuxLogits."); });
  for (const char* recipe : {"inception_v3_imagenet", "resnet50_imagenet", "cifar10_cnn"}) {
    // A recipe names no data; weights need none.
    Config config = load_config(gather_config_sources(recipe, {{.name = "data.format", .value = "synthetic"}})).config;
    if (!has_aux) config.model.aux_weight = 0;
    const Graph graph = draw(config);
    const bool fits = std::ranges::all_of(graph.parameters.all(),
                                          [&](const Parameter& p) { return find_tensor(tensors, p.name) != nullptr; });
    if (!fits || tensors.size() != graph.parameters.all().size()) continue;
    config.model.bn_scale = config.model.bn_scale || has_scales(tensors, graph);
    config.model.classes = find_tensor(tensors, graph.parameters[classifier_parameters(graph)[0]].name)->shape[0];
    log_info("the names are those of {}: taken with the settings of the recipe {}", config.model.name, recipe);
    return config;
  }
  return std::nullopt;
}

// The configuration that the checkpoint bears: the one given, with the file's classes, or that of a bundled recipe.
Config config_for(const CommandLine& command, const std::vector<NamedTensor>& tensors) {
  if (!command.config.empty() || !command.overrides.empty()) {
    return load_config(gather_config_sources(command.config, command.overrides)).config;
  }
  if (auto config = recognize(tensors)) return *config;
  fail(ExitCode::config, "{}: its names are no bundled model's; give the model by --config", command.from);
}

}  // namespace

int import_command(const CommandLine& command) {
  std::vector<NamedTensor> tensors = read_tensors(command.from);
  Config config = config_for(command, tensors);
  if (command.drop_background) {
    const Graph graph = draw(config);
    drop_first_class(tensors, graph);
    const NamedTensor* classifier = find_tensor(tensors, graph.parameters[classifier_parameters(graph)[0]].name);
    if (classifier) config.model.classes = classifier->shape[0];
  }
  const Graph graph = draw(config);
  tensors = arrange_by_table(std::move(tensors), graph.parameters, command.from);

  CheckpointContents contents;
  contents.meta.seed = config.train.seed;
  contents.meta.model = config.model.name;
  contents.config = to_toml(config);
  for (const NamedTensor& tensor : tensors) {
    contents.arrays.push_back({"/model/" + tensor.name, tensor.shape, tensor.values.data()});
  }
  const Hdf5Image image = build_checkpoint(contents, command.to);
  write_file_atomically(command.to, image.bytes(), {.blame = ExitCode::checkpoint, .verify = true});
  log_info("{}: {}, {} classes, {} arrays from {}; start a run from it by --checkpoint.init_from", command.to,
           config.model.name, config.model.classes, tensors.size(), command.from);
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
