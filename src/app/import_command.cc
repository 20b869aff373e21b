#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "app/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/config/model_info.h"
#include "lockstep/config/sources.h"
#include "lockstep/exchange/hdf5_weights.h"
#include "lockstep/exchange/onnx_import.h"
#include "lockstep/exchange/safetensors.h"
#include "lockstep/io/file.h"
#include "lockstep/models/models.h"
#include "lockstep/train/model_graphs.h"

namespace lockstep {
namespace {

// Calls `check` with names and shapes before the values are used; for HDF5 files, before they are read.
std::vector<NamedTensor> read_tensors(const std::string& path, const ShapeCheck& check) {
  if (path.ends_with(".h5")) return read_hdf5_weights(path, check);
  if (is_onnx(path)) {
    OnnxModel model = read_onnx_model(path, ExitCode::checkpoint);
    check(model.weights);
    return std::move(model.weights);
  }
  if (!path.ends_with(".safetensors")) {
    fail(ExitCode::config, "{}: the ending must be .safetensors, .onnx or .h5", path);
  }
  SafetensorsContent content = read_safetensors(path);
  if (!content.counters.empty()) {
    log_info("{}: {} counters num_batches_tracked left out, which no computation needs", path, content.counters.size());
  }
  check(content.tensors);
  return std::move(content.tensors);
}

const NamedTensor* find_tensor(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

Graph draw(const Config& config) { return build_model(config.model.name, model_options(config, 2, true)); }

// Returns whether the scales of batch norms were trained; in models without scales, all are one.
bool has_scales(const std::vector<NamedTensor>& tensors, const Graph& graph) {
  return std::ranges::any_of(graph.parameters.all(), [&](const Parameter& p) {
    if (p.kind != ParameterKind::norm_scale && p.kind != ParameterKind::fixed_scale) return false;
    const NamedTensor* tensor = find_tensor(tensors, p.name);
    return tensor && std::ranges::any_of(tensor->values, [](float value) { return value != 1.0F; });
  });
}

// Returns the configuration of the bundled recipe whose model has exactly these names, with the classes and auxiliary
// head of the file.
std::optional<Config> recognize(const std::vector<NamedTensor>& tensors) {
  const bool has_aux = std::ranges::any_of(tensors, [](const auto& t) { return t.name.starts_with("AuxLogits."); });
  for (const ModelInfo& info : model_infos()) {
    if (info.sparse || info.recipe.empty()) continue;
    const std::string recipe(info.recipe);
    // Recipes name no files of data, and synthetic data need none.
    Config config = load_config(gather_config_sources(recipe, {{.name = "model.name", .value = std::string(info.name)},
                                                               {.name = "data.format", .value = "synthetic"}}))
                        .config;
    if (!has_aux) config.model.aux_weight = 0;
    const Graph graph = draw(config);
    const bool fits = std::ranges::all_of(graph.parameters.all(),
                                          [&](const Parameter& p) { return find_tensor(tensors, p.name) != nullptr; });
    if (!fits || tensors.size() != graph.parameters.all().size()) continue;
    const Shape& classifier = find_tensor(tensors, graph.parameters[classifier_parameters(graph)[0]].name)->shape;
    if (classifier.rank() == 0 || classifier[0] < 1) continue;
    config.model.classes = classifier[0];
    log_info("the names are those of {}: taken with the settings of the recipe {}", config.model.name, recipe);
    return config;
  }
  return std::nullopt;
}

// Returns a configuration of the network in an ONNX file, with its classes and image size.
Config config_of_onnx(const std::string& path) {
  const std::string file = std::filesystem::absolute(path).string();
  const std::vector<Assignment> settings = {{.name = "model.name", .value = "file"},
                                            {.name = "model.file", .value = file},
                                            {.name = "data.format", .value = "synthetic"}};
  return load_config(gather_config_sources({}, settings, read_definition)).config;
}

// Lists the first names of the file for messages.
std::string some_names(const std::vector<NamedTensor>& tensors) {
  constexpr size_t kShown = 5;
  if (tensors.empty()) return "it has no arrays";
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(tensors.size(), kShown); ++i) names.push_back(printable(tensors[i].name));
  return fmt::format("its {} arrays are {}{}", tensors.size(), fmt::join(names, ", "),
                     tensors.size() > kShown ? ", ..." : "");
}

// The configuration for the checkpoint: that of the command, or that of a bundled recipe with the classes of the file.
struct Plan {
  Config config;
  bool recognized = false;
};

// Returns names and shapes without values, which are enough to compare the file with a model.
std::vector<NamedTensor> shapes_of(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> shapes;
  for (const NamedTensor& tensor : tensors) shapes.push_back({tensor.name, tensor.shape, {}});
  return shapes;
}

Plan choose(const CommandLine& command, const std::vector<NamedTensor>& shapes) {
  if (!command.config.empty() || !command.overrides.empty()) {
    return {.config = load_config(gather_config_sources(command.config, command.overrides, read_definition)).config};
  }
  if (is_onnx(command.from)) return {.config = config_of_onnx(command.from)};
  if (auto config = recognize(shapes)) return {.config = *config, .recognized = true};
  fail(ExitCode::config, "{}: its names are no bundled model's; give the model by --config; {}", command.from,
       some_names(shapes));
}

// Does nothing for ONNX files, whose network has the same names.
std::string strip_prefixes(const CommandLine& command, std::vector<NamedTensor>& tensors) {
  return is_onnx(command.from) ? std::string() : strip_wrapper_prefixes(tensors);
}

// Compares names and shapes with the model and returns the plan. Throws if they do not match.
Plan plan_import(const CommandLine& command, const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> shapes = shapes_of(tensors);
  if (const std::string prefix = strip_prefixes(command, shapes); !prefix.empty()) {
    log_info("{}: every name starts with \"{}\", which is left out", command.from, prefix);
  }
  Plan plan = choose(command, shapes);
  if (command.drop_background) {
    const Graph graph = draw(plan.config);
    drop_first_class(shapes, graph);
    const NamedTensor* classifier = find_tensor(shapes, graph.parameters[classifier_parameters(graph)[0]].name);
    if (classifier) plan.config.model.classes = classifier->shape[0];
  }
  arrange_by_table(std::move(shapes), draw(plan.config).parameters, command.from);
  return plan;
}

}  // namespace

int import_command(const CommandLine& command) {
  Plan plan;
  std::vector<NamedTensor> tensors =
      read_tensors(command.from, [&](const std::vector<NamedTensor>& found) { plan = plan_import(command, found); });
  Config& config = plan.config;
  strip_prefixes(command, tensors);
  if (command.drop_background) drop_first_class(tensors, draw(config));
  config.model.bn_scale |= plan.recognized && has_scales(tensors, draw(config));
  tensors = arrange_by_table(std::move(tensors), draw(config).parameters, command.from);
  require_finite(tensors, command.from);

  CheckpointContents contents;
  contents.meta.seed = config.train.seed;
  contents.meta.model = config.model.name;
  contents.config = to_toml(config);
  for (NamedTensor& tensor : tensors) {
    contents.arrays.push_back({"/model/" + tensor.name, tensor.shape, tensor.values.data()});
  }
  const Hdf5Image image = build_checkpoint(contents, command.to);
  write_file_atomically(command.to, image.bytes(), {.blame = ExitCode::checkpoint, .verify = true});
  log_info("{}: {}, {} classes, {} arrays from {}; start a run from it by --checkpoint.init_from", command.to,
           config.model.name, config.model.classes, tensors.size(), command.from);
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
