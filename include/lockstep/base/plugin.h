// Shared objects of our own that are opened on demand, so that a run that does not need them does not load the
// libraries behind them.
#pragma once

#include <filesystem>
#include <optional>

namespace lockstep {

// Returns the path of the plugin: beside the program, in ../lib/lockstep/ relative to it or, for a program in a build
// tree, at the top of that. Nothing if there is none.
std::optional<std::filesystem::path> find_plugin(const std::filesystem::path& file);

// Returns the address of a function that the plugin exports. The plugin uses the common code (log, errors, operations)
// of the program that opens it, so there is one of each. It is never closed, because its objects may live to the end of
// the process. Throws Error(config) with the loader's reason when it cannot be opened, Error(internal) when it lacks
// the function.
void* plugin_function(const std::filesystem::path& file, const char* name);

}  // namespace lockstep
