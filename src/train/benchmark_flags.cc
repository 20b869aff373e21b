#include "lockstep/train/benchmark_flags.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/parse_number.h"
#include "train/config_keys.h"
#include "train/config_suggest.h"
#include "train/config_value.h"

namespace lockstep {
namespace {

struct BenchmarkModel {
  std::string_view flag, model;
  std::string_view image_size, classes, batch_size, learning_rate;
  std::string_view dropout, aux_weight;
};

// Sizes and rates are tf_cnn_benchmarks' own for the models that it has; its ImageNet has a class of background.
constexpr std::array kModels = {
    BenchmarkModel{"inception3", "inception_v3", "299", "1001", "32", "0.005", "0.2", "0.4"},
    BenchmarkModel{"inception_v3", "inception_v3", "299", "1001", "32", "0.005", "0.2", "0.4"},
    BenchmarkModel{"resnet50_v1.5", "resnet50", "224", "1001", "64", "0.005", "0", "0"},
    BenchmarkModel{"resnet50", "resnet50", "224", "1001", "64", "0.005", "0", "0"},
    BenchmarkModel{"cifar10_cnn", "cifar10_cnn", "32", "10", "128", "0.005", "0", "0"},
};

enum class FlagKind : uint8_t { text, count, number, toggle, refused };

struct Flag {
  std::string_view name;
  FlagKind kind = FlagKind::text;
  std::string_view key{};      // of the configuration, where the value goes there as it is
  std::string_view allowed{};  // words, separated by '|'
  std::string_view instead{};  // refused: what to use
};

constexpr std::string_view kNoServers =
    "there are no parameter servers and no addresses to list: start a process a device with mpirun -np N or srun";
constexpr std::string_view kRealData = "to train on images use trainer --config RECIPE --data.train FILES";
constexpr std::string_view kSaves = "a run that saves is trainer --config RECIPE, with the keys of [checkpoint]";
constexpr std::string_view kEvaluates = "use trainer evaluate --config RECIPE, or --data.validation in a training";
constexpr std::string_view kSchedule = "a benchmark's rate is constant; trainer --config RECIPE has [schedule]";
constexpr std::string_view kReduction = "gradients are always reduced over all ranks; see the keys of [comm]";
constexpr std::string_view kTensorFlow = "it is TensorFlow's own and has no meaning here; leave it out";

constexpr std::array kFlags = {
    Flag{.name = "model"},
    Flag{.name = "batch_size", .kind = FlagKind::count, .key = "train.batch_size"},
    Flag{.name = "num_batches", .kind = FlagKind::count},
    Flag{.name = "num_warmup_batches", .kind = FlagKind::count},
    Flag{.name = "display_every", .kind = FlagKind::count},
    Flag{.name = "num_alone_batches", .kind = FlagKind::count},
    Flag{.name = "forward_only", .kind = FlagKind::toggle},
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
    Flag{.name = "distortions", .kind = FlagKind::refused, .instead = kRealData},
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
    Flag{.name = "eval", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "eval_during_training_every_n_steps", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "eval_during_training_every_n_epochs", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "eval_during_training_at_specified_steps", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "eval_during_training_at_specified_epochs", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "num_eval_batches", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "stop_at_top_1_accuracy", .kind = FlagKind::refused, .instead = kEvaluates},
    Flag{.name = "print_training_accuracy", .kind = FlagKind::refused, .instead = kEvaluates},
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
         .kind = FlagKind::refused,
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
    Flag{.name = "cross_replica_sync", .kind = FlagKind::refused, .instead = "every step is synchronous; leave it out"},
    Flag{.name = "trace_file", .kind = FlagKind::refused, .instead = "use trainer --config and log.trace_steps"},
    Flag{.name = "tfprof_file", .kind = FlagKind::refused, .instead = kTensorFlow},
    Flag{.name = "graph_file", .kind = FlagKind::refused, .instead = "trainer explain prints the model"},
    Flag{.name = "num_inter_threads", .kind = FlagKind::refused, .instead = kTensorFlow},
    Flag{.name = "use_tf_layers", .kind = FlagKind::refused, .instead = kTensorFlow},
    Flag{.name = "xla", .kind = FlagKind::refused, .instead = kTensorFlow},
    Flag{.name = "xla_compile", .kind = FlagKind::refused, .instead = kTensorFlow},
    Flag{.name = "loss_type_to_report", .kind = FlagKind::refused, .instead = "the total loss is shown; leave it out"},
    Flag{.name = "display_perf_ewma", .kind = FlagKind::refused, .instead = "means are shown; leave it out"},
};

const Flag* find_flag(std::string_view name) {
  const auto found = std::ranges::find(kFlags, name, &Flag::name);
  return found == kFlags.end() ? nullptr : &*found;
}

// "--model=x" -> "model"; empty where it is no option.
std::string_view option_name(std::string_view argument) {
  if (!argument.starts_with('-')) return {};
  argument.remove_prefix(std::min(argument.find_first_not_of('-'), argument.size()));
  return argument.substr(0, argument.find('='));
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('|'), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

[[noreturn]] void refuse(std::string_view flag, const std::string& value, const std::string& wanted) {
  fail(ExitCode::config, "command line: --{} = {}: {}", flag, quote_for_message(value), wanted);
}

std::string list(std::span<const std::string_view> options) {
  std::string text;
  for (const std::string_view option : options) text += fmt::format("{}{}", text.empty() ? "" : ", ", option);
  return text;
}

void check_value(const Flag& flag, const std::string& value) {
  if (flag.kind == FlagKind::count && parse_number<int64_t>(value).value_or(-1) < 0) {
    refuse(flag.name, value, "a number of 0 or more is wanted");
  }
  if (flag.kind == FlagKind::number && parse_number<double>(value).value_or(-1) < 0) {
    refuse(flag.name, value, "a number of 0 or more is wanted");
  }
  if (flag.allowed.empty()) return;
  const auto allowed = words(flag.allowed);
  if (std::ranges::find(allowed, value) != allowed.end()) return;
  const bool servers = value == "parameter_server" || value == "distributed_replicated" || value == "independent";
  refuse(
      flag.name, value,
      flag.name == "variable_update" && servers ? std::string(kReduction) : "one of " + list(allowed) + " is wanted");
}

std::string_view switch_text(std::string_view value) {
  constexpr std::array kTrue = {"true", "True", "1"};
  constexpr std::array kFalse = {"false", "False", "0"};
  if (std::ranges::find(kTrue, value) != kTrue.end()) return "true";
  if (std::ranges::find(kFalse, value) != kFalse.end()) return "false";
  return {};
}

// What was given, by flag and by key.
class Given {
 public:
  explicit Given(const std::vector<std::string>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) i += take(arguments, i);
  }

  const std::string* flag(std::string_view name) const {
    const auto found = flags_.find(name);
    return found == flags_.end() ? nullptr : &found->second;
  }
  std::string text(std::string_view name, std::string_view otherwise) const {
    const std::string* value = flag(name);
    return value ? *value : std::string(otherwise);
  }
  int64_t count(std::string_view name, int64_t otherwise) const {
    const std::string* given = flag(name);
    return given ? parse_number<int64_t>(*given).value_or(otherwise) : otherwise;
  }
  const std::map<std::string, std::string, std::less<>>& keys() const { return keys_; }

 private:
  // Returns how many arguments after this one it took.
  size_t take(const std::vector<std::string>& arguments, size_t at) {
    const std::string& argument = arguments[at];
    const std::string name(option_name(argument));
    if (name.empty()) {
      fail(ExitCode::config, "command line: {} is not expected in a benchmark", quote_for_message(argument));
    }
    const size_t equals = argument.find('=');
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    const std::string next = at + 1 < arguments.size() ? arguments[at + 1] : std::string();
    const Flag* flag = find_flag(name);
    if (flag && flag->kind == FlagKind::toggle) return take_switch(*flag, value, next);
    if (!flag && !value && name.starts_with("no")) {
      const Flag* negated = find_flag(std::string_view(name).substr(2));
      if (negated && negated->kind == FlagKind::toggle) return take_switch(*negated, "false", next);
    }
    if (flag && flag->kind == FlagKind::refused) {
      fail(ExitCode::config, "command line: --{} is not for this program: {}", name, flag->instead);
    }
    const bool key = find_config_key(name) != nullptr;
    if (!flag && !key) fail_unknown(name);
    if (!value && at + 1 == arguments.size()) fail(ExitCode::config, "command line: --{} has no value", name);
    const std::string given = value.value_or(next);
    if (flag) check_value(*flag, given);
    store(key ? keys_ : flags_, name, given);
    return value ? 0 : 1;
  }

  // Like absl's: the word after a bare switch is its value only where it says true or false.
  size_t take_switch(const Flag& flag, const std::optional<std::string>& value, const std::string& next) {
    const bool takes_next = !value && !switch_text(next).empty();
    const std::string given = value ? *value : takes_next ? next : "true";
    if (switch_text(given).empty()) refuse(flag.name, given, "true or false is wanted");
    store(flags_, std::string(flag.name), std::string(switch_text(given)));
    return takes_next ? 1 : 0;
  }

  static void store(std::map<std::string, std::string, std::less<>>& into, const std::string& name,
                    const std::string& value) {
    const auto [at, fresh] = into.emplace(name, value);
    if (!fresh) {
      fail(ExitCode::config, "command line: --{} is given twice, {} and {}", name, quote_for_message(at->second),
           quote_for_message(value));
    }
  }

  [[noreturn]] static void fail_unknown(const std::string& name) {
    std::vector<std::string> names;
    std::string all;
    for (const Flag& flag : kFlags) {
      if (flag.kind == FlagKind::refused) continue;
      names.emplace_back(flag.name);
      all += fmt::format("{}--{}", all.empty() ? "" : ", ", flag.name);
    }
    const std::string nearest = nearest_word(name, names);
    fail(ExitCode::config, "command line: a benchmark has no flag --{}{}; it takes {}", name,
         did_you_mean(nearest.empty() ? std::vector<std::string>{} : std::vector{"--" + nearest}), all);
  }

  std::map<std::string, std::string, std::less<>> flags_, keys_;
};

const BenchmarkModel& find_model(const Given& given) {
  const std::string name = given.text("model", "");
  std::vector<std::string_view> names;
  for (const BenchmarkModel& model : kModels) names.push_back(model.flag);
  if (name.empty()) fail(ExitCode::config, "command line: a benchmark needs --model: one of {}", list(names));
  const auto found = std::ranges::find(kModels, name, &BenchmarkModel::flag);
  if (found == kModels.end()) refuse("model", name, "one of " + list(names) + " is wanted");
  return *found;
}

BenchmarkOptions options_of(const Given& given, const BenchmarkModel& model) {
  BenchmarkOptions options{.model = std::string(model.flag),
                           .optimizer = given.text("optimizer", "sgd"),
                           .data_format = given.text("data_format", "NCHW"),
                           .batches = given.count("num_batches", 100),
                           .warm_up = given.count("num_warmup_batches", 10),
                           .display_every = given.count("display_every", 10),
                           .alone = given.count("num_alone_batches", 5),
                           .forward_only = given.text("forward_only", "false") == "true",
                           .log_folder = given.text("benchmark_log_dir", "")};
  if (options.batches < 1) refuse("num_batches", std::to_string(options.batches), "1 or more is wanted");
  if (options.display_every < 1) refuse("display_every", std::to_string(options.display_every), "1 or more is wanted");
  if (given.count("num_gpus", 1) != 1) {
    refuse("num_gpus", given.text("num_gpus", ""), "a process has one device; start more with mpirun -np N");
  }
  return options;
}

using Keys = std::map<std::string, std::string, std::less<>>;

// Nothing that costs time beside the steps: no averages, evaluation, checkpoints or files.
void set_fixed(Keys& keys, const BenchmarkModel& model, const BenchmarkOptions& options) {
  keys = {{"model.name", std::string(model.model)},
          {"model.image_size", std::string(model.image_size)},
          {"model.classes", std::string(model.classes)},
          {"model.dropout", std::string(model.dropout)},
          {"model.aux_weight", std::string(model.aux_weight)},
          {"data.format", "synthetic"},
          {"data.augment", "none"},
          {"train.batch_size", std::string(model.batch_size)},
          {"train.label_smoothing", "0"},
          {"train.steps", std::to_string(options.warm_up + options.batches)},
          {"optimizer.lr", std::string(model.learning_rate)},
          {"schedule.name", "constant"},
          {"ema.decay", "0"},
          {"checkpoint.every_seconds", "0"},
          {"checkpoint.resume", "never"},
          {"log.every_steps", "1"},
          {"log.jsonl", ""},
          {"log.tensorboard", "false"},
          {"log.progress", "lines"}};
}

void set_optimizer(Keys& keys, const Given& given, const std::string& optimizer) {
  const bool rmsprop = optimizer == "rmsprop";
  keys["optimizer.name"] = rmsprop ? "rmsprop_tf" : "sgd";
  keys["optimizer.momentum"] = rmsprop                   ? given.text("rmsprop_momentum", "0.9")
                               : optimizer == "momentum" ? given.text("momentum", "0.9")
                                                         : "0";
}

}  // namespace

bool is_benchmark(const std::vector<std::string>& arguments) {
  const auto is_config = [](const std::string& a) { return option_name(a) == "config"; };
  const auto is_flag = [](const std::string& a) { return find_flag(option_name(a)) != nullptr; };
  return !arguments.empty() && arguments.front().starts_with('-') && std::ranges::none_of(arguments, is_config) &&
         std::ranges::any_of(arguments, is_flag);
}

BenchmarkCommand parse_benchmark_flags(const std::vector<std::string>& arguments) {
  const Given given(arguments);
  const BenchmarkModel& model = find_model(given);
  BenchmarkCommand command{.options = options_of(given, model)};
  Keys keys;
  set_fixed(keys, model, command.options);
  set_optimizer(keys, given, command.options.optimizer);
  if (model.flag == "inception3") keys["model.mixed_7c_pool"] = "max";  // tf_cnn_benchmarks' network
  if (given.text("use_fp16", "false") == "true") keys["train.precision"] = "fp16";
  for (const Flag& flag : kFlags) {
    const std::string* value = given.flag(flag.name);
    if (value && !flag.key.empty()) keys[std::string(flag.key)] = *value;
  }
  for (const auto& [key, value] : given.keys()) keys[key] = value;
  for (const auto& [key, value] : keys) command.overrides.push_back({.name = key, .value = value});
  return command;
}

}  // namespace lockstep
