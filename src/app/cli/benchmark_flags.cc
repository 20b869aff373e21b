#include "app/cli/benchmark_flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "app/cli/benchmark_flag_table.h"
#include "lockstep/base/error.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/split_words.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/model_info.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

struct BenchmarkModel {
  std::string_view flag, model;
  std::string_view dropout = "0", aux_weight = "0";
};

// The networks are those of tf_cnn_benchmarks if it has the model. Its Inception-v3 has neither an auxiliary head nor
// dropout.
constexpr std::array kModels = {
    BenchmarkModel{"inception3", "inception_v3"}, BenchmarkModel{"inception_v3", "inception_v3", "0.2", "0.4"},
    BenchmarkModel{"resnet18", "resnet18"},       BenchmarkModel{"resnet34", "resnet34"},
    BenchmarkModel{"resnet50", "resnet50"},       BenchmarkModel{"resnet50_v1.5", "resnet50"},
    BenchmarkModel{"resnet101", "resnet101"},     BenchmarkModel{"resnet101_v1.5", "resnet101"},
    BenchmarkModel{"resnet152", "resnet152"},     BenchmarkModel{"resnet152_v1.5", "resnet152"},
    BenchmarkModel{"cifar10_cnn", "cifar10_cnn"},
};

using Flag = BenchmarkFlag;

// Returns "model" for "--model=x", or an empty string if the argument is not an option.
std::string_view option_name(std::string_view argument) {
  if (!argument.starts_with('-')) return {};
  argument.remove_prefix(std::min(argument.find_first_not_of('-'), argument.size()));
  return argument.substr(0, argument.find('='));
}

std::string refusal(std::string_view flag, const std::string& value, const std::string& wanted) {
  return fmt::format("--{} = {}: {}", flag, quote_for_message(value), wanted);
}

[[noreturn]] void refuse(std::string_view flag, const std::string& value, const std::string& wanted) {
  fail(ExitCode::config, "command line: {}", refusal(flag, value, wanted));
}

// Returns what is wrong with the value, or an empty string if it is valid.
std::string complaint(const Flag& flag, const std::string& value) {
  const bool negative = (flag.kind == FlagKind::count && parse_number<int64_t>(value).value_or(-1) < 0) ||
                        (flag.kind == FlagKind::number && parse_number<double>(value).value_or(-1) < 0);
  if (negative) return refusal(flag.name, value, "a number of 0 or more is wanted");
  if (flag.allowed.empty()) return {};
  const auto allowed = split_words(flag.allowed, '|');
  if (std::ranges::find(allowed, value) != allowed.end()) return {};
  const bool servers = value == "parameter_server" || value == "distributed_replicated" || value == "independent";
  const std::string wanted = fmt::format("one of {} is wanted", fmt::join(allowed, ", "));
  return refusal(flag.name, value,
                 flag.name == "variable_update" && servers ? fmt::format("{}; {}", kAlwaysReduced, wanted) : wanted);
}

std::string_view switch_text(std::string_view value) {
  constexpr std::array kTrue = {"true", "True", "1"};
  constexpr std::array kFalse = {"false", "False", "0"};
  if (std::ranges::find(kTrue, value) != kTrue.end()) return "true";
  if (std::ranges::find(kFalse, value) != kFalse.end()) return "false";
  return {};
}

constexpr size_t kMaxNameBytes = 60;  // of an unknown flag in a message

// The given values, by flag and by configuration key.
class Given {
 public:
  // Throws Error(config) that reports all errors of individual flags at once.
  explicit Given(const std::vector<std::string>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) i += take(arguments, i);
    for (const auto& [instead, names] : refused_) complain("{}: not for this program: {}", names, instead);
    if (!unknown_.empty()) complain("a benchmark has no flag {}; it takes {}", unknown_, flags_taken());
    if (!complaints_.empty()) fail(ExitCode::config, "command line: {}", complaints_);
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
  using Texts = std::map<std::string, std::string, std::less<>>;

  // Parses the argument at this index and returns how many of the following arguments belong to it.
  size_t take(const std::vector<std::string>& arguments, size_t at) {
    const std::string& argument = arguments[at];
    const std::string name(option_name(argument));
    if (name.empty()) {
      complain("{} is not expected in a benchmark", quote_for_message(argument));
      return 0;
    }
    const size_t equals = argument.find('=');
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    const std::string next = at + 1 < arguments.size() ? arguments[at + 1] : std::string();
    const Flag* flag = find_benchmark_flag(name);
    if (flag && is_switch(*flag)) return take_switch(*flag, value, next);
    if (!flag && !value && name.starts_with("no")) {
      const Flag* negated = find_benchmark_flag(std::string_view(name).substr(2));
      if (negated && is_switch(*negated)) return take_switch(*negated, "false", next);
    }
    const bool key = find_config_key(name) != nullptr;
    if (!flag && !key) {
      const std::string_view instead = instead_of_refused_flag(name);
      instead.empty() ? add(unknown_, printable(name, kMaxNameBytes) + suggestion(name))
                      : add(refused_[std::string(instead)], name);
      return value || next.starts_with('-') || next.empty() ? 0 : 1;
    }
    if (!value && at + 1 == arguments.size()) complain("--{} has no value", name);
    const std::string given = value.value_or(next);
    if (const std::string wrong = flag ? complaint(*flag, given) : std::string(); !wrong.empty()) complain("{}", wrong);
    store(key ? keys_ : flags_, name, given);
    return value ? 0 : 1;
  }

  static bool is_switch(const Flag& flag) { return flag.kind == FlagKind::toggle || flag.kind == FlagKind::fixed; }

  // As in absl, the word after a bare switch is its value only if it is true or false.
  size_t take_switch(const Flag& flag, const std::optional<std::string>& value, const std::string& next) {
    const bool takes_next = !value && !switch_text(next).empty();
    const std::string given = value ? *value : takes_next ? next : "true";
    const std::string said(switch_text(given));
    if (said.empty()) {
      complain("{}", refusal(flag.name, given, "true or false is wanted"));
    } else if (flag.kind == FlagKind::fixed && said != flag.allowed) {
      complain("{}", refusal(flag.name, given, fmt::format("only {} is possible: {}", flag.allowed, flag.instead)));
    } else {
      store(flags_, std::string(flag.name), said);
    }
    return takes_next ? 1 : 0;
  }

  void store(Texts& into, const std::string& name, const std::string& value) {
    const auto [at, fresh] = into.emplace(name, value);
    if (!fresh) {
      complain("--{} is given twice, {} and {}", name, quote_for_message(at->second), quote_for_message(value));
    }
  }

  template <class... Args>
  void complain(fmt::format_string<Args...> format, Args&&... args) {
    if (!complaints_.empty()) complaints_ += "; ";
    complaints_ += fmt::format(format, std::forward<Args>(args)...);
  }

  static void add(std::string& names, const std::string& name) {
    names += fmt::format("{}--{}", names.empty() ? "" : ", ", name);
  }

  static std::vector<std::string> names_taken() {
    std::vector<std::string> names;
    for (const Flag& flag : benchmark_flags()) {
      if (flag.kind != FlagKind::fixed) names.emplace_back(flag.name);
    }
    return names;
  }

  static std::string flags_taken() {
    std::string all;
    for (const std::string& name : names_taken()) add(all, name);
    return all;
  }

  static std::string suggestion(const std::string& name) {
    const std::string nearest = nearest_word(name, names_taken());
    return nearest.empty() ? std::string() : fmt::format(" (did you mean --{}?)", nearest);
  }

  Texts flags_, keys_;
  Texts refused_;  // refused flags, by what to use instead
  std::string unknown_, complaints_;
};

const BenchmarkModel& find_model(const Given& given) {
  const std::string name = given.text("model", "");
  std::vector<std::string_view> names;
  for (const BenchmarkModel& model : kModels) names.push_back(model.flag);
  if (name.empty())
    fail(ExitCode::config, "command line: a benchmark needs --model: one of {}", fmt::join(names, ", "));
  const auto found = std::ranges::find(kModels, name, &BenchmarkModel::flag);
  if (found == kModels.end()) refuse("model", name, fmt::format("one of {} is wanted", fmt::join(names, ", ")));
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
                           .batch_on_device = given.text("batch_on_device", "true") == "true",
                           .log_directory = given.text("benchmark_log_dir", "")};
  if (options.batches < 1) refuse("num_batches", std::to_string(options.batches), "1 or more is wanted");
  if (options.display_every < 1) refuse("display_every", std::to_string(options.display_every), "1 or more is wanted");
  if (given.count("num_gpus", 1) != 1) {
    refuse("num_gpus", given.text("num_gpus", ""), "a process has one device; start more with mpirun -np N");
  }
  return options;
}

using Keys = std::map<std::string, std::string, std::less<>>;

// Disables everything that takes time besides the steps: averages, evaluation, checkpoints and files.
void set_fixed(Keys& keys, const BenchmarkModel& model, const BenchmarkOptions& options) {
  const ModelInfo& info = model_info(model.model);
  keys = {{"model.name", std::string(model.model)},
          {"model.image_size", std::string(info.benchmark_image)},
          {"model.classes", std::string(info.benchmark_classes)},
          {"model.dropout", std::string(model.dropout)},
          {"model.aux_weight", std::string(model.aux_weight)},
          {"data.format", "synthetic"},
          {"data.augment", "none"},
          {"train.batch_size", std::string(info.benchmark_batch)},
          {"train.label_smoothing", "0"},
          {"train.steps", std::to_string(options.warm_up + options.batches)},
          {"optimizer.lr", "0.005"},
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
  const auto is_flag = [](const std::string& a) {
    return find_benchmark_flag(option_name(a)) || !instead_of_refused_flag(option_name(a)).empty();
  };
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
  if (model.flag == "inception3") {  // the network of tf_cnn_benchmarks, with initial weights of the same size
    keys["model.mixed_7c_pool"] = "max";
    keys["model.init"] = "fan_in";
  }
  if (given.text("use_fp16", "false") == "true") keys["train.precision"] = "fp16";
  for (const Flag& flag : benchmark_flags()) {
    const std::string* value = given.flag(flag.name);
    if (value && !flag.key.empty()) keys[std::string(flag.key)] = *value;
  }
  for (const auto& [key, value] : given.keys()) keys[key] = value;
  for (const auto& [key, value] : keys) command.overrides.push_back({.name = key, .value = value});
  return command;
}

}  // namespace lockstep
