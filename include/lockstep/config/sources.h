// Reads the sources of a configuration on this machine: files, recipes, the environment and the working directory. Rank
// 0 calls these functions and passes the result to load_config().
#pragma once

#include <string>
#include <vector>

#include "lockstep/config/load.h"

namespace lockstep {

// Returns the directories that may contain bundled recipes; the first one that has a recipe takes precedence. These are
// share/lockstep/recipes of the installation that contains this program or, for a program in a build tree,
// models/recipes of the source.
std::vector<std::string> recipe_directories();

// Returns the sorted names of the recipes (files NAME.toml) in these directories.
std::vector<std::string> recipe_names(const std::vector<std::string>& directories);

// Returns the absolute path of the argument of --config. It is a path if it contains a '/' or ends in ".toml";
// otherwise it is the name of a recipe or, if there is no such recipe, of a file. Throws Error(config), which lists the
// known recipes, if there is neither.
std::string find_config_file(const std::string& name_or_path, const std::vector<std::string>& directories);

// Reads the file (none if the name is empty), the environment and the working directory of this process.
// `read_definition` returns model.definition for a model.file. Throws Error(config) if the file cannot be found or
// read.
ConfigSources gather_config_sources(const std::string& name_or_path, std::vector<Assignment> overrides,
                                    std::function<std::string(const std::string& path)> read_definition = {});

// Returns the environment variables of this process that set a key, sorted by name.
std::vector<Assignment> environment_settings();

}  // namespace lockstep
