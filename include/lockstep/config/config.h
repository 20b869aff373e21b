// The typed configuration of a run: one nested struct per section of the file, with the defaults as initializers.
// docs/configuration.md gives the meaning, unit and range of each key; it is generated from the table in
// src/config/keys.cc. A new key is a member here and a row there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/config/words.h"

namespace lockstep {

// A plain value. load_config() (load.h) returns one whose paths are absolute.
struct Config {
  struct Model {
    std::string name = "inception_v3";
    std::string file;
    std::string definition;
    int64_t classes = 1000;
    int64_t image_size = 299;
    double aux_weight = 0.4;
    double dropout = 0.2;
    InitRule init = InitRule::truncated_normal;
    double bn_momentum = 0.1;
    double bn_epsilon = 0.001;
    bool bn_scale = true;
    bool transform_input = false;
    BranchPool mixed_7c_pool = BranchPool::avg;
    std::vector<int64_t> hidden = {10, 10, 10, 10};
    int64_t vocabulary = 124;
    int64_t max_ids = 64;
    bool operator==(const Model&) const = default;
  } model;

  struct Data {
    std::string format = "tfrecord";
    std::vector<std::string> train;
    std::vector<std::string> validation;
    double validation_fraction = 0;
    int64_t label_offset = 0;
    std::string label_key = "label";
    std::string ids_key = "ids";
    std::string values_key = "values";
    std::string augment = "inception";
    std::string normalize = "inception";
    bool shuffle = true;
    int64_t shuffle_block = 0;
    int64_t workers = 0;
    int64_t prefetch = 2;
    int64_t max_pixels = int64_t{1} << 27;
    BadRecordRule bad_records = BadRecordRule::fail;
    bool exif_orientation = false;
    bool jpeg_scaling = true;
    bool operator==(const Data&) const = default;
  } data;

  struct Train {
    int64_t batch_size = 32;
    int64_t global_batch = 0;
    double epochs = 100;
    int64_t steps = 0;
    double label_smoothing = 0.1;
    Precision precision = Precision::float32;
    bool sync_batch_norm = false;
    int64_t accumulate = 1;
    double clip_norm = 0;
    int64_t seed = 1;
    bool deterministic = false;
    double max_seconds = 0;
    NonFiniteRule not_finite = NonFiniteRule::stop;
    int64_t audit_every = 0;
    std::vector<std::string> freeze;
    std::vector<std::string> freeze_batch_norm;
    bool operator==(const Train&) const = default;
  } train;

  struct Optimizer {
    std::string name = "rmsprop_tf";
    double lr = 0.045;
    bool scale_lr = false;
    double momentum = 0.9;
    bool nesterov = false;
    double decay = 0.9;
    double epsilon = 1.0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double trust = 0.001;
    double l1 = 0;
    double l2 = 0;
    double learning_rate_power = -0.5;
    double initial_accumulator = 0.1;
    double weight_decay = 4e-5;
    bool decay_norm_and_bias = false;
    std::vector<std::string> lr_factors;
    bool operator==(const Optimizer&) const = default;
  } optimizer;

  struct Schedule {
    ScheduleKind name = ScheduleKind::exponential;
    double warmup_epochs = 0;
    double decay_rate = 0.94;
    double decay_epochs = 2;
    std::vector<double> boundaries;
    std::vector<double> factors;
    bool operator==(const Schedule&) const = default;
  } schedule;

  struct Ema {
    double decay = 0.9999;
    bool operator==(const Ema&) const = default;
  } ema;

  struct Checkpoint {
    std::string directory;
    int64_t every_steps = 0;
    double every_seconds = 600;
    int64_t keep = 5;
    bool keep_best = false;
    SaveErrorRule on_error = SaveErrorRule::warn;
    bool overwrite = false;
    std::string resume = "auto";
    std::string init_from;
    std::vector<std::string> init_exclude;
    bool allow_changes = false;
    bool operator==(const Checkpoint&) const = default;
  } checkpoint;

  struct Eval {
    double every_epochs = 1;
    int64_t every_steps = 0;
    double patience_epochs = 0;
    int64_t batch_size = 0;
    bool operator==(const Eval&) const = default;
  } eval;

  struct Device {
    DeviceChoice kind = DeviceChoice::automatic;
    int64_t threads = 0;
    bool share = false;
    GraphCapture graph = GraphCapture::automatic;
    PlanTiming tune = PlanTiming::automatic;
    bool winograd = true;
    bool deferred = false;
    bool operator==(const Device&) const = default;
  } device;

  struct GraphOptions {
    bool rewrites = true;
    RecomputeChoice recompute = RecomputeChoice::norms;
    bool operator==(const GraphOptions&) const = default;
  } graph;

  struct Comm {
    TransportChoice transport = TransportChoice::automatic;
    ReductionAlgorithm algorithm = ReductionAlgorithm::automatic;
    double bucket_mb = 0;
    WireType gradient_dtype = WireType::float32;
    bool watch_launcher = true;
    bool operator==(const Comm&) const = default;
  } comm;

  // For the keys of a phase, 0 means the value of warn_seconds or abort_seconds.
  struct Watchdog {
    bool enabled = true;
    double warn_seconds = 60;
    double abort_seconds = 600;
    double start_warn_seconds = 0;
    double start_abort_seconds = 0;
    double scan_warn_seconds = 0;
    double scan_abort_seconds = 0;
    double evaluate_warn_seconds = 0;
    double evaluate_abort_seconds = 0;
    double save_warn_seconds = 0;
    double save_abort_seconds = 0;
    bool operator==(const Watchdog&) const = default;
  } watchdog;

  struct Log {
    int64_t every_steps = 10;
    std::string jsonl = "metrics.jsonl";
    bool tensorboard = true;
    int64_t histogram_steps = 0;
    ProgressStyle progress = ProgressStyle::automatic;
    LogLevel level = LogLevel::info;
    bool time = false;
    std::string prometheus_file;
    int64_t trace_steps = 0;
    bool operator==(const Log&) const = default;
  } log;

  bool operator==(const Config&) const = default;
};

// Returns whether there are validation data.
inline bool has_validation(const Config& config) {
  return !config.data.validation.empty() || config.data.validation_fraction > 0;
}

}  // namespace lockstep
