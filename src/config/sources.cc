#include "lockstep/config/sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/program_path.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/value.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".toml";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

// Returns the path of the first recipe of this name; empty if there is none.
std::string find_recipe(const std::string& name, const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    const fs::path recipe = fs::path(directory) / (name + std::string(kExtension));
    if (is_file(recipe)) return fs::absolute(recipe).lexically_normal().string();
  }
  return {};
}

ConfigFile open_extended(const std::string& name, const std::string& directory) {
  ConfigFile file;
  if (name.find('/') != std::string::npos || name.ends_with(kExtension)) {
    file.path = (fs::path(directory) / name).lexically_normal().string();
  } else {
    const std::vector<std::string> directories = recipe_directories();
    file.path = find_recipe(name, directories);
    const std::vector<std::string> known = recipe_names(directories);
    if (file.path.empty()) {
      fail(ExitCode::config, "no recipe of that name{}; recipes: {}; the path of a file contains a / or ends in .toml",
           did_you_mean(name, known), fmt::join(known, ", "));
    }
  }
  file.text = read_text_file(file.path, ExitCode::config);
  return file;
}

std::vector<Assignment> environment_variables() {
  std::vector<Assignment> variables;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.push_back({.name = std::string(text.substr(0, equals)), .value = std::string(text.substr(equals + 1))});
  }
  return variables;
}

}  // namespace

std::vector<std::string> recipe_directories() {
  if (runs_in_build_tree()) return {LOCKSTEP_SOURCE_RECIPES};
  return {(program_directory().parent_path() / "share/lockstep/recipes").string()};
}

std::vector<std::string> recipe_names(const std::vector<std::string>& directories) {
  std::set<std::string> names;
  for (const std::string& directory : directories) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
      if (entry.path().extension() == kExtension) names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

std::string find_config_file(const std::string& name_or_path, const std::vector<std::string>& directories) {
  const bool is_path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(kExtension);
  if (!is_path) {
    if (std::string recipe = find_recipe(name_or_path, directories); !recipe.empty()) return recipe;
  }
  const fs::path path = fs::absolute(name_or_path).lexically_normal();
  if (is_path || is_file(path)) return path.string();
  const std::vector<std::string> known = recipe_names(directories);
  if (known.empty()) {
    fail(ExitCode::config,
         "--config {}: no file of that name, and there are no recipes in {}, where this program looks for them: give "
         "--config the path of a file, or start the program where it was installed, with its share/lockstep",
         quote_for_message(name_or_path), fmt::join(directories, ", "));
  }
  fail(ExitCode::config, "--config {}: no recipe of that name, and no file{}; recipes: {}",
       quote_for_message(name_or_path), did_you_mean(name_or_path, known), fmt::join(known, ", "));
}

ConfigSources gather_config_sources(const std::string& name_or_path, std::vector<Assignment> overrides,
                                    std::function<std::string(const std::string& path)> read_definition) {
  ConfigSources sources{.environment = environment_variables(),
                        .overrides = std::move(overrides),
                        .read_file = std::move(read_definition),
                        .open_extended = open_extended,
                        .working_directory = fs::current_path().string()};
  if (!name_or_path.empty()) {
    sources.file_path = find_config_file(name_or_path, recipe_directories());
    sources.file_text = read_text_file(sources.file_path, ExitCode::config);
    if (!fs::is_regular_file(sources.file_path))
      sources.file_directory = sources.working_directory;  // a pipe has no directory
  }
  return sources;
}

std::vector<Assignment> environment_settings() {
  std::vector<Assignment> settings;
  for (Assignment& variable : environment_variables()) {
    const auto key = std::ranges::find(config_keys(), variable.name, &ConfigKey::environment_variable);
    if (key != config_keys().end()) settings.push_back(std::move(variable));
  }
  std::ranges::sort(settings, {}, &Assignment::name);
  return settings;
}

}  // namespace lockstep
