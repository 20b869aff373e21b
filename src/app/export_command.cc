#include <fmt/ranges.h>

#include <string_view>

#include "app/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/checkpoint/schema.h"
#include "lockstep/config/model_info.h"
#include "lockstep/data/image/augment.h"
#include "lockstep/exchange/hdf5_weights.h"
#include "lockstep/exchange/onnx.h"
#include "lockstep/exchange/safetensors.h"
#include "lockstep/io/file.h"
#include "lockstep/models/models.h"
#include "lockstep/train/model_graphs.h"

namespace lockstep {
namespace {

constexpr AtomicWrite kWrite{.blame = ExitCode::checkpoint, .verify = true};

void require_known_ending(const CommandLine& command) {
  const std::string_view to = command.to;
  if (!to.ends_with(".safetensors") && !to.ends_with(".onnx") && !to.ends_with(".h5")) {
    fail(ExitCode::config, "--to {}: the ending must be .safetensors, .onnx or .h5", to);
  }
  if (command.fold_batch_norm && !to.ends_with(".onnx")) {
    fail(ExitCode::config, "--fold_batch_norm is for .onnx files, {} is none", to);
  }
}

std::vector<NamedTensor> read_weights(const CheckpointReader& file, const ParameterTable& table, bool average) {
  const std::string group = average ? "/ema" : "/model";
  if (average && !file.has(group)) {
    fail(ExitCode::config, "{} has no moving averages (ema.decay was 0): leave --ema out", file.path());
  }
  std::vector<NamedTensor> tensors;
  for (const ParameterId id : match_schema(table, file, {.group = group})) {
    const Parameter& parameter = table[id];
    NamedTensor& tensor = tensors.emplace_back();
    tensor = {parameter.name, parameter.shape, std::vector<float>(static_cast<size_t>(parameter.shape.elements()))};
    file.read(array_path(group, parameter.name), tensor.values);
  }
  return tensors;
}

// Returns the metadata with which a reader of the file can prepare the same inputs as in training.
Metadata metadata_of(const CheckpointReader& file, const Config& config, const CommandLine& command) {
  std::vector<std::string> classes = file.classes();
  if (command.drop_background && !classes.empty()) classes.erase(classes.begin());
  Metadata metadata = {{"format", "pt"},  // PyTorch's loaders of safetensors files require it
                       {"model", config.model.name},
                       {"step", fmt::format("{}", file.meta().step)},
                       {"weights", command.average ? "ema" : "raw"},
                       {"classes", fmt::format("{}", fmt::join(classes, "\n"))}};
  if (model_info(config.model.name).sparse) {
    metadata.emplace("vocabulary", fmt::format("{}", config.model.vocabulary));
    return metadata;
  }
  metadata.emplace("image_size", fmt::format("{}", config.model.image_size));
  metadata.emplace("normalize", config.data.normalize);
  metadata.emplace("evaluation_crop", evaluation_crop_text(parse_augment(config.data.augment).value_or(Augment::none),
                                                           config.model.image_size));
  metadata.emplace("transform_input", config.model.transform_input ? "true" : "false");
  metadata.emplace("bn_epsilon", fmt::format("{}", config.model.bn_epsilon));
  return metadata;
}

}  // namespace

int export_command(const CommandLine& command) {
  require_known_ending(command);
  const CheckpointReader file = CheckpointReader::open(checkpoint_at(command.checkpoint));
  Config config = config_from_toml(file.config(), file.path());
  // Only the training graph has the auxiliary head. Its batch norms need at least two samples.
  const Graph training = build_model(config.model.name, model_options(config, 2, true));
  std::vector<NamedTensor> tensors = read_weights(file, training.parameters, command.average);
  if (command.drop_background) {
    drop_first_class(tensors, training);
    --config.model.classes;
  }
  const Metadata metadata = metadata_of(file, config, command);
  if (command.to.ends_with(".safetensors")) {
    write_file_atomically(command.to, encode_safetensors(tensors, metadata), kWrite);
  } else if (command.to.ends_with(".h5")) {
    write_file_atomically(command.to, encode_hdf5_weights(tensors, metadata, command.to).bytes(), kWrite);
  } else {
    const Graph evaluation = build_model(config.model.name, model_options(config, 1, false));
    const std::string model =
        encode_onnx(evaluation, tensors,
                    {.name = config.model.name, .fold_batch_norm = command.fold_batch_norm, .metadata = metadata});
    write_file_atomically(command.to, std::as_bytes(std::span(model)), kWrite);
  }
  log_info("{}: {} of step {}, {} arrays, {} weights", command.to, config.model.name, file.meta().step, tensors.size(),
           command.average ? "ema" : "raw");
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
