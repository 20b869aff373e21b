#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/load.h"
#include "lockstep/config/model_info.h"

namespace lockstep {
namespace {

void validate_model(const Config& config) {
  const Config::Model& model = config.model;
  if (model.transform_input && (model.name != "inception_v3" || config.data.normalize != "torchvision")) {
    fail(ExitCode::config,
         "model.transform_input = true belongs to model.name = \"inception_v3\" with data.normalize = \"torchvision\"; "
         "here they are \"{}\" and \"{}\"",
         model.name, config.data.normalize);
  }
  const ModelInfo& info = model_info(model.name);
  if (model.image_size < info.smallest_image) {
    fail(ExitCode::config, "model.image_size = {}: {} needs at least {} pixels", model.image_size, info.name,
         info.smallest_image);
  }
  if (model.aux_weight > 0 && model.image_size < info.auxiliary_image) {
    fail(ExitCode::config,
         "model.aux_weight = {} with model.image_size = {}: the auxiliary head needs at least {} pixels; set "
         "model.aux_weight = 0 or enlarge the image",
         model.aux_weight, model.image_size, info.auxiliary_image);
  }
}

void validate_data(const Config& config, bool evaluation) {
  const bool sparse = config.data.format == "sparse_tfrecord";
  if (model_info(config.model.name).sparse ? !sparse && config.data.format != "synthetic" : sparse) {
    fail(ExitCode::config,
         "model.name = \"{}\" with data.format = \"{}\": wide_mlp, and it alone, takes sparse_tfrecord",
         config.model.name, config.data.format);
  }
  const bool takes_train = !evaluation || config.data.validation_fraction > 0;
  if (takes_train && config.data.format != "synthetic" && config.data.train.empty()) {
    fail(ExitCode::config,
         "data.train is empty: name the training data in the file, by --data.train PATH, or set data.format = "
         "\"synthetic\"");
  }
  if (config.data.validation_fraction > 0 && !config.data.validation.empty()) {
    fail(ExitCode::config, "data.validation and data.validation_fraction = {} are both given: set only one of them",
         config.data.validation_fraction);
  }
  if (config.checkpoint.keep_best && !has_validation(config)) {
    fail(ExitCode::config,
         "checkpoint.keep_best = true needs data.validation or data.validation_fraction: the best is chosen by "
         "evaluation");
  }
}

void validate_schedule(const Config::Schedule& schedule) {
  if (schedule.name != ScheduleKind::piecewise) return;
  if (schedule.boundaries.empty() || schedule.boundaries.size() != schedule.factors.size()) {
    fail(ExitCode::config,
         "schedule.name = \"piecewise\" needs as many schedule.factors as schedule.boundaries, at least one: there are "
         "{} and {}",
         schedule.factors.size(), schedule.boundaries.size());
  }
  if (std::ranges::adjacent_find(schedule.boundaries, std::greater_equal()) != schedule.boundaries.end()) {
    fail(ExitCode::config, "schedule.boundaries = [{}] must ascend", fmt::join(schedule.boundaries, ", "));
  }
}

void validate_optimizer(const Config::Optimizer& optimizer) {
  for (const LearningRateFactor& item : learning_rate_factors(optimizer)) {
    if (item.factor > 0 || optimizer.name != "ftrl") continue;
    fail(ExitCode::config,
         "optimizer.lr_factors = \"{}=0\": ftrl divides by the learning rate; name these parameters in train.freeze",
         printable(item.pattern));
  }
}

void validate_length(const Config& config) {
  if (config.train.epochs == 0 && config.train.steps == 0) {
    fail(ExitCode::config, "train.epochs and train.steps are both 0: set one of them to the length of training");
  }
}

void validate_device(const Config& config) {
  if (config.device.deferred && config.device.kind == DeviceChoice::gpu) {
    fail(ExitCode::config, "device.deferred = true is for the CPU: set device.kind = \"cpu\"");
  }
}

struct Deadlines {
  const char* phase;  // the prefix of the phase's keys; empty for the general ones
  double warn_seconds, abort_seconds;
};

void validate_watchdog(const Config& config) {
  const Config::Watchdog& w = config.watchdog;
  const Deadlines all[] = {{"", w.warn_seconds, w.abort_seconds},
                           {"start_", w.start_warn_seconds, w.start_abort_seconds},
                           {"scan_", w.scan_warn_seconds, w.scan_abort_seconds},
                           {"evaluate_", w.evaluate_warn_seconds, w.evaluate_abort_seconds},
                           {"save_", w.save_warn_seconds, w.save_abort_seconds}};
  for (const Deadlines& d : all) {
    if (d.warn_seconds > 0 && d.abort_seconds > 0 && d.warn_seconds > d.abort_seconds) {
      fail(ExitCode::config,
           "watchdog.{0}warn_seconds = {1} is above watchdog.{0}abort_seconds = {2}: it would never warn", d.phase,
           d.warn_seconds, d.abort_seconds);
    }
  }
}

void validate_prometheus(const Config& config) {
  if (config.log.prometheus_file.empty() || config.log.prometheus_file.ends_with(".prom")) return;
  fail(ExitCode::config, "log.prometheus_file = '{}': node_exporter reads only files whose names end in .prom",
       printable(config.log.prometheus_file));
}

// The metrics log must be inside the run's directory and must not take the name of another file there.
void validate_log(const Config& config) {
  if (config.log.jsonl.empty()) return;
  const std::filesystem::path path = std::filesystem::path(config.log.jsonl).lexically_normal();
  const bool leaves = path.is_absolute() || *path.begin() == "..";
  const bool is_directory = !path.has_filename() || path == ".";
  const std::string name = path.string();
  constexpr std::array<std::string_view, 5> kTaken = {"run.lock", "latest", "best", "trace.json", "tensorboard"};
  const bool taken = std::ranges::find(kTaken, name) != kTaken.end() || name.ends_with(".h5");
  if (!leaves && !is_directory && !taken) return;
  fail(ExitCode::config,
       "log.jsonl = '{}': {}; name a file inside checkpoint.directory, such as \"metrics.jsonl\", or set \"\" to write "
       "none",
       printable(config.log.jsonl),
       leaves         ? "it lies outside the run's directory"
       : is_directory ? "it names no file"
                      : "other files of a run have this name");
}

}  // namespace

void validate(const Config& config, bool evaluation) {
  validate_log(config);
  validate_prometheus(config);
  validate_model(config);
  validate_data(config, evaluation);
  validate_optimizer(config.optimizer);
  validate_length(config);
  validate_schedule(config.schedule);
  validate_device(config);
  validate_watchdog(config);
}

std::vector<LearningRateFactor> learning_rate_factors(const Config::Optimizer& config) {
  std::vector<LearningRateFactor> factors;
  for (const std::string& item : config.lr_factors) {
    const size_t equals = item.rfind('=');
    const auto factor = equals == std::string::npos ? std::nullopt : parse_number<double>(item.substr(equals + 1));
    if (equals == 0 || !factor || *factor < 0) {
      fail(ExitCode::config,
           "optimizer.lr_factors takes items of the form \"PATTERN=FACTOR\" with a factor of at least 0, such as "
           "\"fc=10\", not \"{}\"",
           printable(item));
    }
    factors.push_back({item.substr(0, equals), *factor});
  }
  return factors;
}

BatchSizes batch_sizes(const Config& config, int ranks) {
  const int64_t shares = ranks * config.train.accumulate;
  if (config.train.global_batch == 0) {
    return {.per_rank = config.train.batch_size, .global = config.train.batch_size * shares};
  }
  const int64_t rest = config.train.global_batch % shares;
  if (rest != 0) {
    const int64_t below = config.train.global_batch - rest;
    fail(ExitCode::config, "train.global_batch = {} does not divide by {} ranks x train.accumulate = {}; {}",
         config.train.global_batch, ranks, config.train.accumulate,
         below > 0 ? fmt::format("the nearest that do are {} and {}", below, below + shares)
                   : fmt::format("the nearest that does is {}", below + shares));
  }
  return {.per_rank = config.train.global_batch / shares, .global = config.train.global_batch};
}

int64_t evaluation_batch(const Config& config, int ranks) {
  if (config.eval.batch_size > 0) return config.eval.batch_size;
  if (config.train.global_batch == 0) return config.train.batch_size;
  const int64_t shares = ranks * config.train.accumulate;
  return (config.train.global_batch + shares - 1) / shares;
}

}  // namespace lockstep
