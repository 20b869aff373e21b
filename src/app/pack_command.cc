#include <fmt/format.h>

#include "app/commands.h"
#include "lockstep/base/cpu_cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/config/load.h"
#include "lockstep/config/sources.h"
#include "lockstep/data/pack.h"
#include "lockstep/data/source/formats.h"
#include "lockstep/exchange/onnx_import.h"
#include "lockstep/io/path_pattern.h"
#include "lockstep/train/loading.h"

namespace lockstep {
namespace {

// The short side to which evaluation resizes before it crops: 8/7 of the input, by torchvision's convention.
int64_t usual_short_side(const Config& config) { return (config.model.image_size * 8 + 6) / 7; }

void report_bad_records(const PackSummary& summary) {
  if (summary.left_out.empty()) return;
  log_warning("{} bad records are left out:", summary.left_out.size());
  for (const std::string& record : summary.left_out) log_warning("  {}", record);
}

void pack_split(const Config& config, const CommandLine& command, const std::vector<std::string>& patterns,
                PackOptions options) {
  const auto source = open_data_source({.format = config.data.format,
                                        .files = list_inputs(config.data.format, patterns),
                                        .bad_records = options.bad_records});
  const PackSummary summary = pack_images(*source, options);
  report_bad_records(summary);
  log_info("{}/{}-*: {} of {} records in {} files, {:.1f} MB, {} of them shrunk to a short side of {}", command.to,
           options.name, summary.records, source->size(), summary.files, static_cast<double>(summary.bytes) / 1e6,
           summary.shrunk, options.short_side);
}

}  // namespace

int pack_command(const CommandLine& command) {
  const LoadedConfig loaded = load_config(gather_config_sources(command.config, command.overrides, read_definition));
  for (const std::string& warning : loaded.warnings) log_warning("{}", warning);
  const Config& config = loaded.config;
  if (config.data.format == "synthetic" || config.data.format == "sparse_tfrecord") {
    fail(ExitCode::config, "data.format = \"{}\": only pictures that are stored somewhere can be packed",
         config.data.format);
  }
  if (config.data.train.empty()) fail(ExitCode::config, "data.train is empty: there is nothing to pack");
  PackOptions options = {
      .directory = command.to,
      .short_side = command.pack.short_side > 0 ? command.pack.short_side : usual_short_side(config),
      .lossless = command.pack.png,
      .quality = command.pack.quality,
      .records_per_file = command.pack.records_per_file,
      .shuffle = config.data.shuffle,
      .seed = static_cast<uint64_t>(config.train.seed),
      .apply_orientation = config.data.exif_orientation,
      .max_pixels = config.data.max_pixels,
      .bad_records = bad_record_rule(config),
      .threads = config.data.workers > 0 ? static_cast<int>(config.data.workers) : usable_cores(cpu_cores())};
  pack_split(config, command, config.data.train, options);
  std::string validation;
  if (!config.data.validation.empty()) {
    options.name = "validation";
    options.shuffle = false;
    pack_split(config, command, config.data.validation, options);
    validation = fmt::format(" --data.validation '{}/validation-*'", literal_pattern(command.to));
  }
  log_info("train with --data.format tfrecord --data.train '{}/train-*'{}", literal_pattern(command.to), validation);
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
