#include "app/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "app/cli/command_help.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/suggest.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

constexpr const char* kCheckpointHelp = "A checkpoint, or a run's directory for its newest";

// The CLI11 parser. `values` holds one list of given values per key, so that a repeated option is detected. The App
// keeps pointers into this object, so it must not be moved or copied.
class Parser {
 public:
  Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  CommandLine parse(const std::vector<std::string>& arguments);

 private:
  CLI::App* add_command(const char* name, Command command, const char* meaning);
  void add_keys();
  void add_evaluate();
  void add_predict();
  void add_profile();
  void add_exchange();
  void add_pack();
  [[noreturn]] void fail_not_understood() const;
  std::string advice_on(const std::string& option) const;
  std::vector<CommandHelp> help() const;
  CommandLine result() const;

  CLI::App app_{"Trains a network on the ranks of an MPI job: mpirun -np N trainer --config FILE"};
  std::vector<std::pair<CLI::App*, Command>> commands_;
  CommandLine line_;  // set by the options that have no list of values below
  bool keys_asked_ = false, man_asked_ = false, bash_asked_ = false;
  std::vector<std::string> config_, checkpoint_, to_, compared_, data_, dump_;
  std::vector<std::vector<std::string>> values_;
};

// Adds an option with exactly one value. Every occurrence is recorded.
CLI::Option* add_single(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                        const std::string& help, const std::string& type) {
  return app.add_option(name, values, help)
      ->expected(1)
      ->type_name(type)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

std::string first_given_once(const std::string& name, const std::vector<std::string>& values) {
  if (values.size() > 1) {
    fail(ExitCode::config, "command line: {} is given twice, {} and {}", name, quote_for_message(values[0]),
         quote_for_message(values[1]));
  }
  return values.empty() ? std::string() : values.front();
}

std::string type_name(const ConfigKey& key) {
  if (!key.allowed.empty() && key.member.type == ConfigType::text)
    return fmt::format("{}", fmt::join(key.allowed, "|"));
  if (key.path != PathRole::none) return key.member.type == ConfigType::text_list ? "PATH,..." : "PATH";
  constexpr const char* kTypes[] = {"true|false", "INTEGER", "NUMBER", "TEXT", "TEXT,...", "INTEGER,...", "NUMBER,..."};
  static_assert(std::size(kTypes) == std::variant_size_v<ConfigValue>);
  return kTypes[static_cast<size_t>(key.member.type)];
}

// Whether a subcommand reads a configuration, and so accepts --config and the keys.
bool takes_configuration(Command command) { return command != Command::inspect && command != Command::export_weights; }

CLI::App* Parser::add_command(const char* name, Command command, const char* meaning) {
  CLI::App* const app = app_.add_subcommand(name, meaning);
  if (takes_configuration(command)) {
    app->fallthrough()->footer("Takes --config and the options --section.key of trainer --help-keys as well.");
  }
  commands_.emplace_back(app, command);
  return app;
}

Parser::Parser() : values_(config_keys().size()) {
  app_.name("trainer");
  app_.set_help_flag("-h,--help", "Print this and leave");
  app_.set_version_flag("--version", "", "Print the versions of program and libraries and leave");
  app_.add_flag("--help-keys", keys_asked_, "Print what every key means, its default and what is allowed");
  app_.add_flag("--help-man", man_asked_, "Print this manual page");
  app_.add_flag("--help-bash", bash_asked_, "Print the completion for bash, to be sourced");
  app_.require_subcommand(0, 1);
  add_single(app_, "--config", config_, "Configuration file, or the name of a bundled recipe", "FILE|RECIPE");
  add_single(app_, "--dump-config", dump_, "Write the whole configuration and leave; -: to standard output", "FILE");
  add_keys();

  add_command("train", Command::train, "Train, or resume a run; this word may be left out");
  add_command("check", Command::check, "Compare all ranks and try everything short of the first step");
  add_evaluate();
  add_predict();
  add_profile();
  add_command("explain", Command::explain, "Print the effective configuration and what it means; runs nothing");
  CLI::App* const inspect =
      add_command("inspect", Command::inspect, "Print what is in a checkpoint and whether it is whole");
  inspect->add_option("checkpoint", line_.checkpoint, kCheckpointHelp)->required()->type_name("PATH");
  inspect->add_flag("--verify", line_.verify, "Read every byte");
  add_single(*inspect, "--compare", compared_, "Print what differs from this one (of a directory: its newest)", "PATH");
  add_exchange();
  add_pack();
}

void Parser::add_evaluate() {
  CLI::App* const app = add_command("evaluate", Command::evaluate, "Evaluate a checkpoint on the validation data");
  add_single(*app, "checkpoint,--checkpoint", checkpoint_,
             "A file, or a run's directory for its newest [default latest]", "PATH|latest");
  app->add_flag("--per_class", line_.per_class, "Print precision, recall and support of each class");
  app->add_option("--confusion", line_.confusion, "Write how often each class was predicted as which")
      ->type_name("FILE.csv");
  app->add_flag("--ema", line_.average, "Use the moving averages for --per_class and --confusion");
}

void Parser::add_predict() {
  PredictChoices& choices = line_.predict;
  CLI::App* const app =
      add_command("predict", Command::predict, "Print the most probable classes of images, or of a data set");
  app->add_option("checkpoint", line_.checkpoint, kCheckpointHelp)->required()->type_name("PATH");
  app->add_option("images", choices.images, "JPEG and PNG files, and directories that hold some")->type_name("PATH");
  add_single(*app, "--data", data_, "A data set instead, in the format data.format", "FILES");
  app->add_option("--top", choices.top, "Classes for each sample [default 5]")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->type_name("N");
  app->add_option("--format", choices.format, "Format of the output [default table]")
      ->check(CLI::IsMember({"table", "csv", "json"}))
      ->type_name("table|csv|json");
  app->add_flag("--ema", line_.average, "Predict with the moving averages instead of the weights");
}

void Parser::add_profile() {
  ProfileChoices& choices = line_.profile;
  CLI::App* const app = add_command("profile", Command::profile, "Run a few steps and print where their time went");
  app->add_option("--steps", choices.steps, "Measured steps, after two others [default 10]")
      ->check(CLI::Range(int64_t{1}, int64_t{100}))
      ->type_name("N");
  app->add_option("--rows", choices.rows, "Rows of the table, the costliest first [default 25]")
      ->check(CLI::Range(1, 100'000))
      ->type_name("N");
  add_single(*app, "--to", to_, "Write all rows", "FILE.json");
}

void Parser::add_exchange() {
  const std::string background = "Leave the first class out: 1001 classes with a background become 1000";
  CLI::App* const out =
      add_command("export", Command::export_weights, "Write a checkpoint's weights for other programs");
  out->add_option("checkpoint", line_.checkpoint, kCheckpointHelp)->required()->type_name("PATH");
  add_single(*out, "--to", to_, "What to write; the ending names the format", "FILE.safetensors|.onnx|.h5")->required();
  out->add_flag("--ema", line_.average, "The moving averages instead of the weights");
  out->add_flag("--fold_batch_norm", line_.fold_batch_norm, "ONNX: put batch norms into their convolutions");
  out->add_flag("--drop_background", line_.drop_background, background);
  CLI::App* const in = add_command("import", Command::import_weights, "Make a checkpoint of another program's weights");
  in->add_option("file", line_.from, "What to read")->required()->type_name("FILE.safetensors|.onnx|.h5");
  add_single(*in, "--to", to_, "The checkpoint to write", "PATH")->required();
  in->add_flag("--drop_background", line_.drop_background, background);
}

void Parser::add_pack() {
  PackChoices& choices = line_.pack;
  CLI::App* const app =
      add_command("pack", Command::pack, "Write smaller copies of the images as TFRecords, for slow storage");
  add_single(*app, "--to", to_, "The directory to write into", "DIRECTORY")->required();
  app->add_option("--short_side", choices.short_side, "Longer short sides shrink to it [default 8/7 model.image_size]")
      ->check(CLI::Range(int64_t{1}, int64_t{65500}))
      ->type_name("PIXELS");
  app->add_option("--quality", choices.quality, "Quality of JPEGs [default 95]")
      ->check(CLI::Range(1, 100))
      ->type_name("1..100");
  app->add_flag("--png", choices.png, "PNG instead of JPEG: nothing is lost but size");
  app->add_option("--records_per_file", choices.records_per_file, "Records in one file [default 1024]")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->type_name("RECORDS");
}

void Parser::add_keys() {
  for (size_t i = 0; i < values_.size(); ++i) {
    const ConfigKey& key = config_keys()[i];
    add_single(app_, "--" + key.full_name(), values_[i], std::string(key.meaning), type_name(key))
        ->group(fmt::format("[{}]", key.section));
  }
}

// Returns the options of a command, such as "--ema", without the keys of the configuration.
std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name.find('.') == std::string::npos) options.push_back("--" + name);
    }
  }
  return options;
}

// Returns the advice for an unknown option, whose value is ignored: the nearest known one, if there is one.
std::string Parser::advice_on(const std::string& option) const {
  const std::string name = option.substr(0, option.find('='));
  std::vector<std::string> options = options_of(app_);
  for (const auto& [app, command] : commands_) std::ranges::copy(options_of(*app), std::back_inserter(options));
  const std::string plain = nearest_word(name, options);
  if (plain == name) return "; other commands have it, see trainer --help";
  if (!plain.empty()) return did_you_mean({plain});
  const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  const size_t dot = bare.find('.');
  std::vector<std::string> keys =
      dot == std::string::npos ? suggest_keys("", bare) : suggest_keys(bare.substr(0, dot), bare.substr(dot + 1));
  for (std::string& key : keys) key.insert(0, "--");
  return did_you_mean(keys);
}

void Parser::fail_not_understood() const {
  const std::vector<std::string> remaining = app_.remaining(true);
  require(!remaining.empty(), "nothing was left over");
  const std::string& first = remaining.front();
  if (first.starts_with('-')) {
    fail(ExitCode::config, "command line: unknown option {}{}", quote_for_message(first), advice_on(first));
  }
  std::vector<std::string> names;
  for (const auto& [app, command] : commands_) names.push_back(app->get_name());
  fail(ExitCode::config, "command line: {} is not expected here{}; see trainer --help", quote_for_message(first),
       did_you_mean(first, names));
}

// A checkpoint contains its configuration, but "latest" needs one that names the directory.
void require_checkpoint_or_configuration(const CommandLine& line) {
  if (!line.config.empty() || line.checkpoint != "latest") return;
  if (std::ranges::find(line.overrides, "checkpoint.directory", &Assignment::name) != line.overrides.end()) return;
  fail(ExitCode::config,
       "command line: no configuration; give --checkpoint PATH (a file, or a run's directory: its own configuration is "
       "then taken), or --config FILE for the latest checkpoint of its checkpoint.directory");
}

// `predict` takes either images or a data set, which then replaces the validation data.
void predict_from(const std::string& data, CommandLine& line) {
  if (line.predict.images.empty() == data.empty()) {
    fail(ExitCode::config, "command line: predict takes {}",
         data.empty() ? "image files or directories, or --data FILES" : "either images or --data FILES, not both");
  }
  if (line.checkpoint == "latest") line.checkpoint = "./latest";  // a path, unlike in evaluate
  if (data.empty()) return;
  for (const char* key : {"data.validation", "data.validation_fraction"}) {
    if (std::ranges::find(line.overrides, key, &Assignment::name) == line.overrides.end()) continue;
    fail(ExitCode::config, "command line: --data and --{} are both given", key);
  }
  line.overrides.push_back({.name = "data.validation", .value = data});
  line.overrides.push_back({.name = "data.validation_fraction", .value = "0"});
}

// Rejects empty values, such as that of a variable that a script has not set. Only keys may have one.
void require_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (name.find('.') != std::string::npos || std::ranges::count(option->results(), "") == 0) continue;
    fail(ExitCode::config, "command line: {} is empty; it takes {}", name, option->get_type_name());
  }
}

CommandHelp help_of(const CLI::App& app) {
  CommandHelp help{.name = app.get_name(), .meaning = app.get_description(), .options = {}};
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();  // the text of a check follows after a colon
    help.options.push_back(
        {.flag = option->get_lnames().empty() ? std::string() : "--" + option->get_lnames().front(),
         .positional = option->get_positional() ? option->get_name(true) : std::string(),
         .type = option->get_items_expected_max() == 0 ? std::string() : type.substr(0, type.find(':')),
         .meaning = option->get_description()});
  }
  return help;
}

std::vector<CommandHelp> Parser::help() const {
  std::vector<CommandHelp> all = {help_of(app_)};
  all.front().name.clear();
  for (const auto& [app, command] : commands_) {
    all.push_back(help_of(*app));
    all.back().takes_configuration = takes_configuration(command);
  }
  return all;
}

CommandLine Parser::result() const {
  if (keys_asked_) return {.command = Command::print, .text = keys_help()};
  if (man_asked_) return {.command = Command::print, .text = man_page(help())};
  if (bash_asked_) return {.command = Command::print, .text = bash_completion(help())};
  CommandLine line = line_;
  require_values(app_);
  for (const auto& [app, command] : commands_) {
    if (!app->parsed()) continue;
    line.command = command;
    require_values(*app);
  }
  line.to = first_given_once("--to", to_);
  line.compared = first_given_once("--compare", compared_);
  if (!takes_configuration(line.command)) return line;
  line.config = first_given_once("--config", config_);
  for (size_t i = 0; i < values_.size(); ++i) {
    const std::string name = config_keys()[i].full_name();
    const std::string value = first_given_once("--" + name, values_[i]);
    if (!values_[i].empty()) line.overrides.push_back({.name = name, .value = value});
  }
  if (const std::string file = first_given_once("--dump-config", dump_); !dump_.empty()) {
    if (line.command != Command::train) {
      fail(ExitCode::config,
           "command line: --dump-config writes the configuration of a training; leave the subcommand out");
    }
    line.command = Command::dump_config;
    line.to = file;
  }
  if (line.command == Command::predict) {
    predict_from(first_given_once("--data", data_), line);
  } else if (line.command == Command::evaluate) {
    line.checkpoint = checkpoint_.empty() ? "latest" : first_given_once("--checkpoint", checkpoint_);
    require_checkpoint_or_configuration(line);
    if (line.average && !line.per_class && line.confusion.empty()) {
      fail(ExitCode::config,
           "command line: --ema is about --per_class and --confusion; without them an evaluation prints both");
    }
  } else if (line.command != Command::import_weights && line.config.empty() && line.overrides.empty()) {
    fail(ExitCode::config,
         "command line: no configuration; give --config FILE or the name of a recipe, such as "
         "--config digits; see trainer --help");
  }
  return line;
}

// Prepares the arguments for CLI11, which expects them in reverse order, and which would take the next argument as the
// value of "--name=".
std::vector<std::string> for_cli11(const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  for (const std::string& argument : arguments) {
    const bool empty_value = argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    out.push_back(empty_value ? argument.substr(0, argument.size() - 1) : argument);
    if (empty_value) out.emplace_back();
  }
  std::ranges::reverse(out);
  return out;
}

CommandLine Parser::parse(const std::vector<std::string>& arguments) {
  try {
    app_.parse(for_cli11(arguments));
  } catch (const CLI::CallForHelp&) {
    return {.command = Command::print, .text = app_.get_subcommands().empty() ? short_help(help()) : app_.help()};
  } catch (const CLI::CallForVersion&) {
    return {.command = Command::version};
  } catch (const CLI::ExtrasError&) {
    fail_not_understood();
  } catch (const CLI::ParseError& e) {
    constexpr size_t kMaxBytes = 500;  // CLI11 quotes arguments in full
    fail(ExitCode::config, "command line: {}; see trainer --help", printable(e.what(), kMaxBytes));
  }
  return result();
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  if (!is_benchmark(arguments)) return Parser().parse(arguments);
  BenchmarkCommand command = parse_benchmark_flags(arguments);
  return {.command = Command::benchmark,
          .overrides = std::move(command.overrides),
          .benchmark = std::move(command.options)};
}

}  // namespace lockstep
