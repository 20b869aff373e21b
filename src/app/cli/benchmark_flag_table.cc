#include "app/cli/benchmark_flag_table.h"

#include <algorithm>

#include "lockstep/base/split_words.h"

namespace lockstep {
namespace {

constexpr std::string_view kScaleAdapts = "the loss scale adapts by itself; leave it out";
constexpr std::string_view kTensorFlow = "TensorFlow's own, without a meaning here; leave it out";
constexpr std::string_view kRealData = "to train on images use trainer --config RECIPE --data.train FILES";
constexpr std::string_view kEvaluates = "use trainer evaluate --config RECIPE, or --data.validation in a training";

constexpr BenchmarkFlag kFlags[] = {
    {.name = "model"},
    {.name = "batch_size", .kind = FlagKind::count, .key = "train.batch_size"},
    {.name = "num_batches", .kind = FlagKind::count},
    {.name = "num_warmup_batches", .kind = FlagKind::count},
    {.name = "display_every", .kind = FlagKind::count},
    {.name = "num_alone_batches", .kind = FlagKind::count},
    {.name = "forward_only", .kind = FlagKind::toggle},
    {.name = "batch_on_device", .kind = FlagKind::toggle},
    {.name = "data_format", .allowed = "NCHW|NHWC"},
    {.name = "device", .key = "device.kind", .allowed = "cpu|gpu"},
    {.name = "num_gpus", .kind = FlagKind::count},
    {.name = "num_intra_threads", .kind = FlagKind::count, .key = "device.threads"},
    {.name = "optimizer", .allowed = "sgd|momentum|rmsprop"},
    {.name = "init_learning_rate", .kind = FlagKind::number, .key = "optimizer.lr"},
    {.name = "momentum", .kind = FlagKind::number},
    {.name = "rmsprop_decay", .kind = FlagKind::number, .key = "optimizer.decay"},
    {.name = "rmsprop_momentum", .kind = FlagKind::number},
    {.name = "rmsprop_epsilon", .kind = FlagKind::number, .key = "optimizer.epsilon"},
    {.name = "weight_decay", .kind = FlagKind::number, .key = "optimizer.weight_decay"},
    {.name = "use_fp16", .kind = FlagKind::toggle},
    {.name = "variable_update", .allowed = "horovod|replicated|distributed_all_reduce|collective_all_reduce"},
    {.name = "tf_random_seed", .kind = FlagKind::count, .key = "train.seed"},
    {.name = "benchmark_log_dir"},

    {.name = "distortions", .kind = FlagKind::fixed, .allowed = "false", .instead = kRealData},
    {.name = "eval", .kind = FlagKind::fixed, .allowed = "false", .instead = kEvaluates},
    {.name = "print_training_accuracy", .kind = FlagKind::fixed, .allowed = "false", .instead = kEvaluates},
    {.name = "fp16_enable_auto_loss_scale", .kind = FlagKind::fixed, .allowed = "true", .instead = kScaleAdapts},
    {.name = "cross_replica_sync", .kind = FlagKind::fixed, .allowed = "true", .instead = "every step is synchronous"},
    {.name = "xla", .kind = FlagKind::fixed, .allowed = "false", .instead = kTensorFlow},
    {.name = "xla_compile", .kind = FlagKind::fixed, .allowed = "false", .instead = kTensorFlow},
    {.name = "display_perf_ewma",
     .kind = FlagKind::fixed,
     .allowed = "false",
     .instead = "means are shown; leave it out"},
};

// Flags that are always an error, separated by spaces, and what to use instead.
struct RefusedFlags {
  std::string_view instead, names;
};
constexpr RefusedFlags kRefused[] = {
    {kRealData, "data_dir data_name resize_method"},
    {"use --num_batches", "num_epochs"},
    {"a run that saves is trainer --config RECIPE, with the keys of [checkpoint]",
     "train_dir save_model_secs save_model_steps max_ckpts_to_keep"},
    {"use trainer --config and log.tensorboard", "summary_verbosity save_summaries_steps"},
    {kEvaluates,
     "eval_during_training_every_n_steps eval_during_training_every_n_epochs eval_during_training_at_specified_steps "
     "eval_during_training_at_specified_epochs num_eval_batches stop_at_top_1_accuracy"},
    {"a benchmark's rate is constant; trainer --config RECIPE has [schedule]",
     "piecewise_learning_rate_schedule num_epochs_per_decay learning_rate_decay_factor num_learning_rate_warmup_epochs "
     "minimum_learning_rate"},
    {"use --train.clip_norm, the norm of the whole gradient", "gradient_clip"},
    {kScaleAdapts, "fp16_loss_scale"},
    {kAlwaysReduced, "all_reduce_spec gradient_repacking agg_small_grads_max_bytes horovod_device"},
    {"there are no parameter servers and no addresses to list: start a process a device with mpirun -np N or srun",
     "local_parameter_device job_name ps_hosts worker_hosts task_index server_protocol"},
    {"use trainer --config and log.trace_steps", "trace_file"},
    {"trainer explain prints the model", "graph_file"},
    {"the total loss is shown; leave it out", "loss_type_to_report"},
    {kTensorFlow, "tfprof_file num_inter_threads use_tf_layers"},
};

}  // namespace

std::span<const BenchmarkFlag> benchmark_flags() { return kFlags; }

const BenchmarkFlag* find_benchmark_flag(std::string_view name) {
  const auto* const found = std::ranges::find(kFlags, name, &BenchmarkFlag::name);
  return found == std::end(kFlags) ? nullptr : found;
}

std::string_view instead_of_refused_flag(std::string_view name) {
  for (const RefusedFlags& refused : kRefused) {
    if (std::ranges::count(split_words(refused.names, ' '), name) > 0) return refused.instead;
  }
  return {};
}

}  // namespace lockstep
