#include "lockstep/config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "config/file.h"
#include "config/uses.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/model_info.h"
#include "lockstep/config/placeholders.h"
#include "lockstep/config/suggest.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

constexpr std::string_view kEnvironmentPrefix = "LOCKSTEP_";
constexpr std::string_view kDefault = "default";

// Opens the file that the last one of `files` extends. Throws Error(config) for a cycle and for a long chain.
ConfigFile open_extended(const ConfigExtension& extension, const std::vector<ConfigFile>& files,
                         const ConfigSources& sources) {
  constexpr size_t kMostFiles = 8;
  const std::string where =
      fmt::format("{}:{}: extends = {}", files.back().path, extension.line, quote_for_message(extension.name));
  if (!sources.open_extended) fail(ExitCode::config, "{}: this text cannot extend a file", where);
  ConfigFile base;
  try {
    base = sources.open_extended(extension.name, files.back().directory);
  } catch (const Error& error) {
    fail(ExitCode::config, "{}: {}", where, error.what());
  }
  std::string chain;
  for (const ConfigFile& file : files) chain += printable(file.path) + " -> ";
  if (std::ranges::find(files, base.path, &ConfigFile::path) != files.end()) {
    fail(ExitCode::config, "{}: the files extend each other: {}{}", where, chain, printable(base.path));
  }
  if (files.size() == kMostFiles) {
    fail(ExitCode::config, "{}: more than {} files extend one another: {}{}", where, kMostFiles, chain,
         printable(base.path));
  }
  return base;
}

// A file that sets one of the two batch sizes resets the other one, which the file that it extends may have set.
void choose_batch_size(const std::vector<ConfigFileEntry>& entries, LoadedConfig& loaded) {
  constexpr const char* kSizes[] = {"train.batch_size", "train.global_batch"};
  const auto sets = [&](const char* name) {
    return std::ranges::find(entries, find_config_key(name), &ConfigFileEntry::key) != entries.end();
  };
  for (const int chosen : {0, 1}) {
    const char* const other = kSizes[1 - chosen];
    if (!sets(kSizes[chosen]) || sets(other)) continue;
    const ConfigKey& key = *find_config_key(other);
    key.member.set(loaded.config, key.member.get(Config{}));
    loaded.origin.insert_or_assign(other, kDefault);
  }
}

// Applies the last one of `files`, which the others extend, after the file that it extends itself.
void apply_file(std::vector<ConfigFile> files, const ConfigSources& sources, LoadedConfig& loaded) {
  ConfigFile& file = files.back();
  if (file.directory.empty()) file.directory = std::filesystem::path(file.path).parent_path().string();
  ConfigExtension extension;
  std::vector<ConfigFileEntry> entries = parse_config_file(file.text, file.path, &extension);
  const std::string path = file.path, directory = file.directory;
  if (!extension.name.empty()) {
    ConfigFile base = open_extended(extension, files, sources);
    files.push_back(std::move(base));
    apply_file(std::move(files), sources, loaded);
  } else if (entries.empty()) {
    loaded.warnings.push_back(fmt::format("{}: this configuration is empty", path));
  }
  choose_batch_size(entries, loaded);
  for (ConfigFileEntry& entry : entries) {
    const ConfigKey& key = *entry.key;
    const std::string where = fmt::format("{}:{}", path, entry.line);
    const bool output = key.path == PathRole::output_pattern;
    if (output && sources.effective) entry.value = without_placeholders(std::get<std::string>(entry.value));
    const std::string& base = output ? sources.working_directory : directory;
    key.member.set(loaded.config, resolve_config_paths(key, std::move(entry.value), base, where));
    loaded.origin.insert_or_assign(key.full_name(), where);
  }
}

// Applies one value from the environment or the command line.
void apply_text(const ConfigKey& key, const std::string& text, const std::string& origin, const ConfigSources& sources,
                LoadedConfig& loaded) {
  ConfigValue value = parse_config_value(key, text, origin);
  check_config_value(key, value, origin);
  key.member.set(loaded.config, resolve_config_paths(key, std::move(value), sources.working_directory, origin));
  loaded.origin.insert_or_assign(key.full_name(), origin);
}

// Rejects a variable that is probably a misspelt key: one that names a section, or that is similar to a key. Other
// variables with the prefix may belong to other programs.
void reject_misspelt_variable(const std::string& name) {
  std::vector<std::string> variables;
  for (const ConfigKey& key : config_keys()) variables.push_back(key.environment_variable());
  std::string nearest = nearest_word(name, variables);
  bool ours = !nearest.empty();
  for (const ConfigKey& key : config_keys()) {
    const std::string variable = key.environment_variable();
    const std::string_view section_prefix =
        std::string_view(variable).substr(0, kEnvironmentPrefix.size() + key.section.size() + 1);
    if (!name.starts_with(section_prefix)) continue;
    ours = true;
    const std::vector<std::string> keys = suggest_keys(key.section, name.substr(section_prefix.size()));
    if (nearest.empty() && !keys.empty()) nearest = find_config_key(keys.front())->environment_variable();
    break;
  }
  if (!ours) return;
  fail(ExitCode::config, "environment variable {}: no such key{}", quote_for_message(name),
       did_you_mean(nearest.empty() ? std::vector<std::string>{} : std::vector{nearest}));
}

void apply_environment(const ConfigSources& sources, LoadedConfig& loaded) {
  for (const auto& [name, value] : sources.environment) {
    if (!name.starts_with(kEnvironmentPrefix)) continue;
    const auto key = std::ranges::find(config_keys(), name, &ConfigKey::environment_variable);
    if (key == config_keys().end()) {
      reject_misspelt_variable(name);
    } else {
      apply_text(*key, value, fmt::format("environment {}", name), sources, loaded);
    }
  }
}

void apply_overrides(const ConfigSources& sources, LoadedConfig& loaded) {
  for (const auto& [name, value] : sources.overrides) {
    const ConfigKey* key = find_config_key(name);
    if (!key) {
      const size_t dot = std::min(name.find('.'), name.size());
      const std::string bare_name = dot < name.size() ? name.substr(dot + 1) : name;
      const std::string section = dot < name.size() ? name.substr(0, dot) : std::string();
      fail(ExitCode::config, "command line: unknown key {}{}", quote_for_message(name),
           did_you_mean(suggest_keys(section, bare_name)));
    }
    apply_text(*key, value, "command line", sources, loaded);
  }
}

// Returns whether another optimizer or schedule than the model's default was chosen. Its parameters, such as rates,
// were tuned for the default one, so they must not be applied then.
bool belongs_to_another(const LoadedConfig& loaded, std::string_view section, std::span<const ModelDefault> defaults) {
  const std::string name = fmt::format("{}.name", section);
  const auto own = std::ranges::find(defaults, name, &ModelDefault::key);
  if (own == defaults.end()) return false;
  return loaded.origin.at(name) != kDefault &&
         std::get<std::string>(find_config_key(name)->member.get(loaded.config)) != own->value;
}

void apply_model_defaults(LoadedConfig& loaded) {
  const ModelInfo& model = model_info(loaded.config.model.name);
  const std::string origin = fmt::format("{} of {}", kDefault, model.name);
  std::set<std::string_view> skipped;
  for (const std::string_view section : config_sections()) {
    if (belongs_to_another(loaded, section, model.defaults)) skipped.insert(section);
  }
  for (const auto& [name, value] : model.defaults) {
    const ConfigKey* key = find_config_key(name);
    require(key != nullptr, "model default {} is no key", name);
    std::string& from = loaded.origin.at(key->full_name());
    if (from != kDefault || skipped.contains(key->section)) continue;
    key->member.set(loaded.config, parse_config_value(*key, value, origin));
    from = origin;
  }
}

// Copies the contents of model.file to model.definition, and uses its sizes unless others were given. A definition in
// the same file, as in that of a checkpoint, takes precedence.
void read_definition(const ConfigSources& sources, LoadedConfig& loaded) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  Config::Model& model = loaded.config.model;
  if (model.name != "file") return;
  const auto source = [&](const char* key) {
    const std::string& origin = loaded.origin.at(key);
    return origin.substr(0, origin.rfind(':'));
  };
  const bool same_source = source("model.file") == source("model.definition");
  if (!model.definition.empty() && (model.file.empty() || same_source)) return;
  if (model.file.empty() || !sources.read_file) {
    fail(ExitCode::config, "model.name = \"file\" needs model.file, the file that defines the network");
  }
  model.definition = sources.read_file(model.file);
  if (model.definition.empty()) fail(ExitCode::config, "{}: this model file is empty", printable(model.file));
  if (model.definition.size() > kMostBytes) {
    fail(ExitCode::config, "{}: {} bytes are too many for a model file; the limit is {}", printable(model.file),
         model.definition.size(), kMostBytes);
  }
  loaded.origin.insert_or_assign("model.definition", model.file);
  for (const ConfigFileEntry& entry : parse_model_sizes(model.definition, model.file)) {
    const std::string name = entry.key->full_name();
    std::string& origin = loaded.origin.at(name);
    const ConfigValue given = entry.key->member.get(loaded.config);
    if (origin.starts_with(kDefault)) {
      entry.key->member.set(loaded.config, entry.value);
      origin = model.file;
    } else if (given != entry.value) {
      loaded.replaced.push_back(fmt::format("{} = {} ({}) takes the place of {} in {}", name, config_value_toml(given),
                                            origin, config_value_toml(entry.value), printable(model.file)));
    }
  }
}

// batch_size and global_batch are alternatives; if both are given, one of them would be ignored silently.
void reject_two_batch_sizes(const LoadedConfig& loaded) {
  const std::string& per_rank = loaded.origin.at("train.batch_size");
  if (loaded.config.train.global_batch == 0 || per_rank == kDefault) return;
  fail(ExitCode::config,
       "train.batch_size ({}) and train.global_batch ({}) are both given; leave one out, or set train.global_batch = 0",
       per_rank, loaded.origin.at("train.global_batch"));
}

}  // namespace

LoadedConfig load_config(const ConfigSources& sources) {
  LoadedConfig loaded;
  for (const ConfigKey& key : config_keys()) loaded.origin.emplace(key.full_name(), kDefault);
  if (!sources.file_path.empty()) {
    apply_file({{.path = sources.file_path, .text = sources.file_text, .directory = sources.file_directory}}, sources,
               loaded);
  }
  apply_environment(sources, loaded);
  apply_overrides(sources, loaded);
  apply_model_defaults(loaded);
  read_definition(sources, loaded);

  Config& config = loaded.config;
  if (config.checkpoint.directory.empty()) {
    const std::filesystem::path runs = std::filesystem::path(sources.working_directory) / "runs";
    const bool from_file = config.model.name == "file" && !config.model.file.empty();
    const std::filesystem::path name(from_file ? std::filesystem::path(config.model.file).stem().string()
                                               : config.model.name);
    config.checkpoint.directory = without_placeholders((runs / name).lexically_normal().string());
  }
  // Arguments and directory names may contain any bytes, and paths were built from both.
  for (const ConfigKey& key : config_keys()) {
    check_config_encoding(key, key.member.get(config), loaded.origin.at(key.full_name()));
  }
  // An effective configuration contains both batch sizes although the user did not write both.
  const bool both_written = loaded.origin.at("train.batch_size").rfind(sources.file_path + ":", 0) != 0;
  if (!sources.effective || both_written) reject_two_batch_sizes(loaded);
  validate(config, sources.evaluation);
  Config filled = config;
  fill_in_placeholders(filled, {.ranks = 1, .time = "time", .job = "job"});
  return loaded;
}

std::vector<std::string> settings_without_effect(const LoadedConfig& loaded) {
  std::vector<std::string> sentences;
  for (const ConfigKey& key : config_keys()) {
    const std::string name = key.full_name();
    const std::string& origin = loaded.origin.at(name);
    if (origin.starts_with(kDefault)) continue;
    if (const ConfigUse* const use = missing_use(loaded.config, name)) {
      sentences.push_back(fmt::format("{} = {} ({}): it needs {}", name,
                                      printable(config_value_toml(key.member.get(loaded.config))), origin, use->when));
    }
  }
  return sentences;
}

Config config_from_toml(std::string_view text, const std::string& where) {
  Config config;
  for (ConfigFileEntry& entry : parse_config_file(text, where)) {
    entry.key->member.set(config, std::move(entry.value));
  }
  return config;
}

}  // namespace lockstep
