#include "train/start_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/checkpoint/schema.h"
#include "lockstep/exchange/safetensors.h"
#include "lockstep/models/models.h"
#include "lockstep/train/model_graphs.h"
#include "train/checkpoint_comparison.h"

namespace lockstep {
namespace {

// A file of weights in any format.
struct WeightFile {
  std::string path;
  std::string group;                    // of its arrays
  std::map<std::string, Shape> shapes;  // by path within the file
  std::function<void(const std::string& path, std::span<float> values)> read;
  int64_t image_size = 0;  // for which its weights are made; 0: unknown
};

WeightFile weight_file(const std::string& path, std::vector<NamedTensor> content) {
  require_finite(content, printable(path));
  WeightFile file{.path = printable(path), .group = "", .shapes = {}, .read = {}};
  std::map<std::string, std::vector<float>> tensors;
  for (NamedTensor& tensor : content) {
    file.shapes[tensor.name] = tensor.shape;
    tensors[tensor.name] = std::move(tensor.values);
  }
  file.read = [tensors = std::move(tensors)](const std::string& name, std::span<float> values) {
    std::ranges::copy(tensors.at(name), values.begin());
  };
  return file;
}

WeightFile open_safetensors(const std::string& path) {
  SafetensorsContent content = read_safetensors(path);
  if (const std::string prefix = strip_wrapper_prefixes(content.tensors); !prefix.empty()) {
    log_info("{}: every name starts with \"{}\", which is left out", path, prefix);
  }
  return weight_file(path, std::move(content.tensors));
}

WeightFile open_onnx(const std::string& path, OnnxModel model) {
  WeightFile file = weight_file(path, std::move(model.weights));
  file.image_size = model.image_size;
  return file;
}

WeightFile open_start_weights(const Config& config, const std::string& path, OnnxModel* onnx) {
  if (path.ends_with(".safetensors")) return open_safetensors(path);
  if (onnx) return open_onnx(path, std::move(*onnx));
  if (is_onnx(path)) return open_onnx(path, read_onnx_model(path, ExitCode::checkpoint));
  for (const std::string_view ending : {".pt", ".pth", ".bin"}) {
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

// Returns the number of classes of the file's classifier if only that number differs from the model's, otherwise 0.
int64_t other_classes(const WeightFile& file, const Parameter& classifier) {
  const auto found = file.shapes.find(array_path(file.group, classifier.name));
  if (found == file.shapes.end() || found->second.rank() != classifier.shape.rank()) return 0;
  Shape as_in_model = found->second;
  as_in_model[0] = classifier.shape[0];
  return as_in_model == classifier.shape && found->second != classifier.shape ? found->second[0] : 0;
}

}  // namespace

void load_start_weights(const Config& config, const std::string& path, const CompiledModel& model,
                        const HostState& host, OnnxModel* onnx) {
  constexpr std::string_view kWeight = ".weight";
  const WeightFile file = open_start_weights(config, path, onnx);
  SchemaOptions schema{.group = file.group, .exclude = config.checkpoint.init_exclude};
  const Graph drawn = build_model(config.model.name, model_options(config, 2, true));  // a batch norm needs two
  int64_t classes = 0;
  for (const ParameterId id : classifier_parameters(drawn)) {
    const Parameter& weights = drawn.parameters[id];
    const int64_t stored = weights.name.ends_with(kWeight) ? other_classes(file, weights) : 0;
    const std::string layer = weights.name.substr(0, weights.name.size() - kWeight.size());
    if (stored == 0 || std::ranges::find(schema.exclude, layer) != schema.exclude.end()) continue;
    schema.exclude.push_back(layer);
    classes = stored;
  }
  std::vector<ParameterId> matched;
  try {
    matched = match_schema(model.parameters(), file.shapes, file.path, schema);
  } catch (const Error& error) {
    const bool other_size = file.image_size != 0 && file.image_size != config.model.image_size;
    fail(error.code(), "{}; checkpoint.init_exclude = [\"LAYER\", ...] leaves layers out that are to start afresh{}",
         error.what(),
         other_size ? fmt::format("; the file is for images of {} pixels, model.image_size = {}", file.image_size,
                                  config.model.image_size)
                    : "");
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
