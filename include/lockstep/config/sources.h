// Where a configuration comes from on this machine: files, recipes, the environment and the working folder.
// Called by rank 0; what it returns goes to load_config().
#pragma once

#include <string>
#include <vector>

#include "lockstep/config/load.h"

namespace lockstep {

// Folders that may hold bundled recipes, first one wins: share/lockstep/recipes of the installation this program runs
// from; for a program of a build tree, models/recipes of the source.
std::vector<std::string> recipe_folders();

// Names of the recipes in these folders (files NAME.toml), sorted.
std::vector<std::string> recipe_names(const std::vector<std::string>& folders);

// The absolute path of what `--config` named: a path when it holds a '/' or ends in ".toml", else the recipe of that
// name, else the file of that name. Throws Error(config) with the known recipes when there is none.
std::string find_config_file(const std::string& name_or_path, const std::vector<std::string>& folders);

// Reads the file (none when the name is empty), this process's environment and working folder.
// Throws Error(config) when the file cannot be found or read.
ConfigSources gather_config_sources(const std::string& name_or_path, std::vector<Assignment> overrides);

// The variables of this process's environment that set a key, sorted by name.
std::vector<Assignment> environment_settings();

}  // namespace lockstep
