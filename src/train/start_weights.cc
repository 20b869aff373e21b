#include "train/start_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/checkpoint/schema.h"
#include "lockstep/exchange/safetensors.h"
#include "train/checkpoint_comparison.h"

namespace lockstep {
namespace {

// A file of weights, whatever its format.
struct WeightFile {
  std::string path;
  std::string group;                    // of its arrays
  std::map<std::string, Shape> shapes;  // by path within the file
  std::function<void(const std::string& path, std::span<float> values)> read;
};

WeightFile open_safetensors(const std::string& path) {
  SafetensorsContent content = read_safetensors(path);
  if (const std::string prefix = strip_wrapper_prefixes(content.tensors); !prefix.empty()) {
    log_info("{}: every name starts with \"{}\", which is left out", path, prefix);
  }
  require_finite(content.tensors, path);
  WeightFile file{.path = path, .group = "", .shapes = {}, .read = {}};
  std::map<std::string, std::vector<float>> tensors;
  for (NamedTensor& tensor : content.tensors) {
    file.shapes[tensor.name] = tensor.shape;
    tensors[tensor.name] = std::move(tensor.values);
  }
  file.read = [tensors = std::move(tensors)](const std::string& name, std::span<float> values) {
    std::ranges::copy(tensors.at(name), values.begin());
  };
  return file;
}

WeightFile open_start_weights(const Config& config) {
  const std::string& path = config.checkpoint.init_from;
  if (path.ends_with(".safetensors")) return open_safetensors(path);
  for (const std::string_view ending : {".pt", ".pth", ".bin", ".onnx"}) {
    if (!path.ends_with(ending)) continue;
    fail(ExitCode::config,
         "checkpoint.init_from = \"{}\" is another program's file: save its weights as safetensors, and name that file "
         "(docs/exchange.md)",
         path);
  }
  const auto reader = std::make_shared<CheckpointReader>(CheckpointReader::open_weights(checkpoint_at(path)));
  compare_with_fine_tuning(config, *reader);
  WeightFile file{.path = reader->path(), .group = reader->model_group(), .shapes = {}, .read = {}};
  for (const CheckpointReader::Array& array : reader->arrays(file.group)) file.shapes[array.path] = array.shape;
  file.read = [reader](const std::string& array, std::span<float> values) { reader->read(array, values); };
  return file;
}

// Returns the number of classes of the file's head if only that number differs from the model's head, otherwise 0.
int64_t other_classes(const WeightFile& file, const ParameterTable& table, const std::string& layer) {
  const ParameterId weight = table.find(layer + ".weight");
  const auto found = file.shapes.find(array_path(file.group, layer + ".weight"));
  if (weight < 0 || found == file.shapes.end()) return 0;
  const Shape &wanted = table[weight].shape, &stored = found->second;
  const bool alike = stored.rank() == 2 && wanted.rank() == 2 && stored[1] == wanted[1] && stored[0] != wanted[0];
  return alike ? stored[0] : 0;
}

}  // namespace

void load_start_weights(const Config& config, const CompiledModel& model, const HostState& host) {
  const WeightFile file = open_start_weights(config);
  SchemaOptions schema{.group = file.group, .exclude = config.checkpoint.init_exclude};
  const Graph& graph = model.training().graph();
  int64_t classes = 0;
  for (const LossHead& head : graph.losses) {
    const std::string& layer = graph.value(head.logits).name;
    const int64_t stored = other_classes(file, model.parameters(), layer);
    if (stored == 0 || std::ranges::find(schema.exclude, layer) != schema.exclude.end()) continue;
    schema.exclude.push_back(layer);
    classes = stored;
  }
  std::vector<ParameterId> matched;
  try {
    matched = match_schema(model.parameters(), file.shapes, file.path, schema);
  } catch (const Error& error) {
    fail(error.code(), "{}; checkpoint.init_exclude = [\"LAYER\", ...] leaves layers out that are to start afresh",
         error.what());
  }
  for (const ParameterId id : matched) {
    file.read(array_path(file.group, model.parameters()[id].name), host.parameter(id));
  }
  std::string fresh;
  if (!schema.exclude.empty()) fresh = fmt::format("; {} start from fresh values", fmt::join(schema.exclude, ", "));
  if (classes > 0) fresh += fmt::format(" (the file has {} classes, the model {})", classes, config.model.classes);
  log_info("weights from {}{}", file.path, fresh);
}

}  // namespace lockstep
