#include "app/cli/benchmark_flag_table.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

using Flag = BenchmarkFlag;

constexpr std::string_view kNoServers =
    "there are no parameter servers and no addresses to list: start a process a device with mpirun -np N or srun";
constexpr std::string_view kRealData = "to train on images use trainer --config RECIPE --data.train FILES";
constexpr std::string_view kSaves = "a run that saves is trainer --config RECIPE, with the keys of [checkpoint]";
constexpr std::string_view kEvaluates = "use trainer evaluate --config RECIPE, or --data.validation in a training";
constexpr std::string_view kSchedule = "a benchmark's rate is constant; trainer --config RECIPE has [schedule]";
constexpr std::string_view kReduction = kAlwaysReduced;
constexpr std::string_view kTensorFlow = "TensorFlow's own, without a meaning here; leave it out";

constexpr std::array kFlags = {
    Flag{.name = "model"},
    Flag{.name = "batch_size", .kind = FlagKind::count, .key = "train.batch_size"},
    Flag{.name = "num_batches", .kind = FlagKind::count},
    Flag{.name = "num_warmup_batches", .kind = FlagKind::count},
    Flag{.name = "display_every", .kind = FlagKind::count},
    Flag{.name = "num_alone_batches", .kind = FlagKind::count},
    Flag{.name = "forward_only", .kind = FlagKind::toggle},
    Flag{.name = "batch_on_device", .kind = FlagKind::toggle},
    Flag{.name = "data_format", .allowed = "NCHW|NHWC"},
    Flag{.name = "device", .key = "device.kind", .allowed = "cpu|gpu"},
    Flag{.name = "num_gpus", .kind = FlagKind::count},
    Flag{.name = "num_intra_threads", .kind = FlagKind::count, .key = "device.threads"},
    Flag{.name = "optimizer", .allowed = "sgd|momentum|rmsprop"},
    Flag{.name = "init_learning_rate", .kind = FlagKind::number, .key = "optimizer.lr"},
    Flag{.name = "momentum", .kind = FlagKind::number},
    Flag{.name = "rmsprop_decay", .kind = FlagKind::number, .key = "optimizer.decay"},
    Flag{.name = "rmsprop_momentum", .kind = FlagKind::number},
    Flag{.name = "rmsprop_epsilon", .kind = FlagKind::number, .key = "optimizer.epsilon"},
    Flag{.name = "weight_decay", .kind = FlagKind::number, .key = "optimizer.weight_decay"},
    Flag{.name = "use_fp16", .kind = FlagKind::toggle},
    Flag{.name = "variable_update", .allowed = "horovod|replicated|distributed_all_reduce|collective_all_reduce"},
    Flag{.name = "tf_random_seed", .kind = FlagKind::count, .key = "train.seed"},
    Flag{.name = "benchmark_log_dir"},

    Flag{.name = "data_dir", .kind = FlagKind::refused, .instead = kRealData},
    Flag{.name = "data_name", .kind = FlagKind::refused, .instead = kRealData},
    Flag{.name = "distortions", .kind = FlagKind::fixed, .allowed = "false", .instead = kRealData},
    Flag{.name = "resize_method", .kind = FlagKind::refused, .instead = kRealData},
    Flag{.name = "num_epochs", .kind = FlagKind::refused, .instead = "use --num_batches"},
    Flag{.name = "train_dir", .kind = FlagKind::refused, .instead = kSaves},
    Flag{.name = "save_model_secs", .kind = FlagKind::refused, .instead = kSaves},
    Flag{.name = "save_model_steps", .kind = FlagKind::refused, .instead = kSaves},
    Flag{.name = "max_ckpts_to_keep", .kind = FlagKind::refused, .instead = kSaves},
    Flag{.name = "summary_verbosity", .kind = FlagKind::refused, .instead = "use trainer --config and log.tensorboard"},
    Flag{.name = "save_summaries_steps",
         .kind = FlagKind::refused,
         .instead = "use trainer --config and log.tensorboard"},
    Flag{.name = "eval", .kind = FlagKind::fixed, .allowed = "false", .instead = kEvaluates},
    Flag{.name = "eval_during_training_every_n_steps", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "eval_during_training_every_n_epochs", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "eval_during_training_at_specified_steps", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "eval_during_training_at_specified_epochs", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "num_eval_batches", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "stop_at_top_1_accuracy", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "print_training_accuracy", .kind = FlagKind::fixed, .allowed = "false", .instead = kEvaluates},
    Flag{.name = "piecewise_learning_rate_schedule", .kind = FlagKind::refused, .instead = kSchedule},
    Flag{.name = "num_epochs_per_decay", .kind = FlagKind::refused, .instead = kSchedule},
    Flag{.name = "learning_rate_decay_factor", .kind = FlagKind::refused, .instead = kSchedule},
    Flag{.name = "num_learning_rate_warmup_epochs", .kind = FlagKind::refused, .instead = kSchedule},
    Flag{.name = "minimum_learning_rate", .kind = FlagKind::refused, .instead = kSchedule},
    Flag{.name = "gradient_clip",
         .kind = FlagKind::refused,
         .instead = "use --train.clip_norm, the norm of the whole gradient"},
    Flag{.name = "fp16_loss_scale",
         .kind = FlagKind::refused,
         .instead = "the loss scale adapts by itself; leave it out"},
    Flag{.name = "fp16_enable_auto_loss_scale",
         .kind = FlagKind::fixed,
         .allowed = "true",
         .instead = "the loss scale adapts by itself; leave it out"},
    Flag{.name = "all_reduce_spec", .kind = FlagKind::refused, .instead = kReduction},
    Flag{.name = "gradient_repacking", .kind = FlagKind::refused, .instead = kReduction},
    Flag{.name = "agg_small_grads_max_bytes", .kind = FlagKind::refused, .instead = kReduction},
    Flag{.name = "horovod_device", .kind = FlagKind::refused, .instead = kReduction},
    Flag{.name = "local_parameter_device", .kind = FlagKind::refused, .instead = kNoServers},
    Flag{.name = "job_name", .kind = FlagKind::refused, .instead = kNoServers},
    Flag{.name = "ps_hosts", .kind = FlagKind::refused, .instead = kNoServers},
    Flag{.name = "worker_hosts", .kind = FlagKind::refused, .instead = kNoServers},
    Flag{.name = "task_index", .kind = FlagKind::refused, .instead = kNoServers},
    Flag{.name = "server_protocol", .kind = FlagKind::refused, .instead = kNoServers},
    Flag{.name = "cross_replica_sync",
         .kind = FlagKind::fixed,
         .allowed = "true",
         .instead = "every step is synchronous"},
    Flag{.name = "trace_file", .kind = FlagKind::refused, .instead = "use trainer --config and log.trace_steps"},
    Flag{.name = "tfprof_file", .kind = FlagKind::refused, .instead = kTensorFlow},
    Flag{.name = "graph_file", .kind = FlagKind::refused, .instead = "trainer explain prints the model"},
    Flag{.name = "num_inter_threads", .kind = FlagKind::refused, .instead = kTensorFlow},
    Flag{.name = "use_tf_layers", .kind = FlagKind::refused, .instead = kTensorFlow},
    Flag{.name = "xla", .kind = FlagKind::fixed, .allowed = "false", .instead = kTensorFlow},
    Flag{.name = "xla_compile", .kind = FlagKind::fixed, .allowed = "false", .instead = kTensorFlow},
    Flag{.name = "loss_type_to_report", .kind = FlagKind::refused, .instead = "the total loss is shown; leave it out"},
    Flag{.name = "display_perf_ewma",
         .kind = FlagKind::fixed,
         .allowed = "false",
         .instead = "means are shown; leave it out"},
};

}  // namespace

std::span<const BenchmarkFlag> benchmark_flags() { return kFlags; }

const BenchmarkFlag* find_benchmark_flag(std::string_view name) {
  const auto found = std::ranges::find(kFlags, name, &Flag::name);
  return found == kFlags.end() ? nullptr : &*found;
}

}  // namespace lockstep
