#include "app/cli/command_line.h"

#include <fmt/format.h>

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
  void add_keys();
  void add_exchange(const std::string& footer);
  void add_pack(const std::string& footer);
  void add_predict(const std::string& footer);
  [[noreturn]] void fail_not_understood() const;
  NamesAndMeanings subcommands() const;
  CommandLine result() const;

  CLI::App app_{"Trains a network on the ranks of an MPI job: mpirun -np N trainer --config FILE"};
  CLI::App* check_ = nullptr;
  CLI::App* evaluate_ = nullptr;
  CLI::App* predict_ = nullptr;
  CLI::App* explain_ = nullptr;
  CLI::App* inspect_ = nullptr;
  CLI::App* export_ = nullptr;
  CLI::App* import_ = nullptr;
  CLI::App* pack_ = nullptr;
  std::vector<std::string> config_;
  std::vector<std::string> checkpoint_;
  std::string inspected_;
  bool verify_ = false, keys_asked_ = false;
  CommandLine exchange_;  // the other options of predict, export, import and pack
  std::vector<std::string> to_, compared_, data_;
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
  if (key.path != PathRole::none) return key.member.type == ConfigType::text_list ? "PATH,..." : "PATH";
  switch (key.member.type) {
    case ConfigType::boolean:
      return "true|false";
    case ConfigType::integer:
      return "INTEGER";
    case ConfigType::number:
      return "NUMBER";
    case ConfigType::text:
      return "TEXT";
    case ConfigType::text_list:
      return "TEXT,...";
    case ConfigType::integer_list:
      return "INTEGER,...";
    case ConfigType::number_list:
      return "NUMBER,...";
  }
  return "";
}

Parser::Parser() : values_(config_keys().size()) {
  app_.name("trainer");
  app_.set_help_flag("-h,--help", "Print this and leave");
  app_.set_version_flag("--version", "", "Print the versions of program and libraries and leave");
  app_.add_flag("--help-keys", keys_asked_);
  app_.require_subcommand(0, 1);
  add_single(app_, "--config", config_, "Configuration file, or the name of a bundled recipe", "FILE|RECIPE");
  add_keys();

  const std::string footer = "Takes --config and the options --section.key of trainer --help-keys as well.";
  check_ = app_.add_subcommand("check", "Compare all ranks and try everything short of the first step");
  check_->fallthrough()->footer(footer);
  evaluate_ = app_.add_subcommand("evaluate", "Evaluate a checkpoint on the validation data");
  evaluate_->fallthrough()->footer(footer);
  add_single(*evaluate_, "--checkpoint", checkpoint_, "A file, or a run's directory for its newest [default latest]",
             "PATH|latest");
  add_predict(footer);
  explain_ = app_.add_subcommand("explain", "Print the effective configuration and what it means; runs nothing");
  explain_->fallthrough()->footer(footer);
  inspect_ = app_.add_subcommand("inspect", "Print what is in a checkpoint and whether it is whole");
  inspect_->add_option("checkpoint", inspected_, kCheckpointHelp)->required()->type_name("PATH");
  inspect_->add_flag("--verify", verify_, "Read every byte");
  add_single(*inspect_, "--compare", compared_, "Print what differs from this one (of a directory: its newest)",
             "PATH");
  add_exchange(footer);
  add_pack(footer);
}

void Parser::add_predict(const std::string& footer) {
  PredictChoices& choices = exchange_.predict;
  predict_ = app_.add_subcommand("predict", "Print the most probable classes of images, or of a data set");
  predict_->fallthrough()->footer(footer);
  predict_->add_option("checkpoint", exchange_.checkpoint, kCheckpointHelp)->required()->type_name("PATH");
  predict_->add_option("images", choices.images, "JPEG and PNG files, and directories that hold some")
      ->type_name("PATH ...");
  add_single(*predict_, "--data", data_, "A data set instead, in the format data.format", "FILES");
  predict_->add_option("--top", choices.top, "Classes for each sample [default 5]")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->type_name("N");
  predict_->add_option("--format", choices.format, "Of the output [default table]")
      ->check(CLI::IsMember({"table", "csv", "json"}))
      ->type_name("table|csv|json");
  predict_->add_flag("--ema", exchange_.average, "With the moving averages instead of the weights");
}

void Parser::add_exchange(const std::string& footer) {
  const std::string background = "Leave the first class out: 1001 classes with a background become 1000";
  export_ = app_.add_subcommand("export", "Write a checkpoint's weights for other programs");
  export_->add_option("checkpoint", exchange_.checkpoint, kCheckpointHelp)->required()->type_name("PATH");
  add_single(*export_, "--to", to_, "What to write; the ending names the format", "FILE.safetensors|.onnx|.h5")
      ->required();
  export_->add_flag("--ema", exchange_.average, "The moving averages instead of the weights");
  export_->add_flag("--fold_batch_norm", exchange_.fold_batch_norm, "ONNX: put batch norms into their convolutions");
  export_->add_flag("--drop_background", exchange_.drop_background, background);
  import_ = app_.add_subcommand("import", "Make a checkpoint of another program's weights");
  import_->fallthrough()->footer(footer);
  import_->add_option("file", exchange_.from, "What to read")->required()->type_name("FILE.safetensors|.h5");
  add_single(*import_, "--to", to_, "The checkpoint to write", "PATH")->required();
  import_->add_flag("--drop_background", exchange_.drop_background, background);
}

void Parser::add_pack(const std::string& footer) {
  PackChoices& choices = exchange_.pack;
  pack_ = app_.add_subcommand("pack", "Write smaller copies of the images as TFRecords, for slow storage");
  pack_->fallthrough()->footer(footer);
  add_single(*pack_, "--to", to_, "The directory to write into", "DIRECTORY")->required();
  pack_
      ->add_option("--short_side", choices.short_side, "Longer short sides shrink to it [default 8/7 model.image_size]")
      ->check(CLI::Range(int64_t{1}, int64_t{65500}))
      ->type_name("PIXELS");
  pack_->add_option("--quality", choices.quality, "Of JPEGs [default 95]")
      ->check(CLI::Range(1, 100))
      ->type_name("1..100");
  pack_->add_flag("--png", choices.png, "PNG instead of JPEG: nothing is lost but size");
  pack_->add_option("--records_per_file", choices.records_per_file, "Records in one file [default 1024]")
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

// Returns what to say about an unknown option, whose value is ignored: the nearest one, if there is one.
std::string advice_on(const std::string& option) {
  const std::string name = option.substr(0, option.find('='));
  const std::string plain = nearest_word(
      name, {"--config", "--checkpoint", "--data", "--top", "--format", "--verify", "--help", "--help-keys",
             "--version", "--to", "--ema", "--short_side", "--quality", "--png", "--records_per_file"});
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
  fail(ExitCode::config, "command line: {} is not expected here{}; see trainer --help", quote_for_message(first),
       did_you_mean(first, {"check", "evaluate", "predict", "explain", "inspect", "export", "import", "pack"}));
}

NamesAndMeanings Parser::subcommands() const {
  NamesAndMeanings all;
  for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; })) {
    all.emplace_back(command->get_name(), command->get_description());
  }
  return all;
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

CommandLine Parser::result() const {
  if (keys_asked_) return {.command = Command::print, .text = keys_help()};
  CommandLine line;
  if (inspect_->parsed()) {
    line.command = Command::inspect;
    line.checkpoint = inspected_;
    line.verify = verify_;
    line.compared = first_given_once("--compare", compared_);
    return line;
  }
  if (export_->parsed() || import_->parsed() || pack_->parsed() || predict_->parsed()) {
    line = exchange_;
    line.command = export_->parsed()    ? Command::export_weights
                   : predict_->parsed() ? Command::predict
                   : import_->parsed()  ? Command::import_weights
                                        : Command::pack;
    line.to = first_given_once("--to", to_);
    if (export_->parsed()) return line;
  }
  line.config = first_given_once("--config", config_);
  for (size_t i = 0; i < values_.size(); ++i) {
    const std::string name = config_keys()[i].full_name();
    const std::string value = first_given_once("--" + name, values_[i]);
    if (!values_[i].empty()) line.overrides.push_back({.name = name, .value = value});
  }
  if (evaluate_->parsed()) {
    line.command = Command::evaluate;
    line.checkpoint = checkpoint_.empty() ? "latest" : first_given_once("--checkpoint", checkpoint_);
  } else if (check_->parsed()) {
    line.command = Command::check;
  } else if (explain_->parsed()) {
    line.command = Command::explain;
  }
  if (line.command == Command::predict) {
    predict_from(first_given_once("--data", data_), line);
  } else if (line.command == Command::evaluate) {
    require_checkpoint_or_configuration(line);
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
    return {.command = Command::print,
            .text = app_.get_subcommands().empty() ? short_help(subcommands()) : app_.help()};
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
