// Shared objects of our own that are opened at need, so that a run that does not want them does not pay for the
// libraries behind them.
#pragma once

#include <filesystem>
#include <optional>

namespace lockstep {

// Where the plugin lies: beside the program, in ../lib/lockstep/ of it, or, for a program of the build tree, at the top
// of that. Empty: nowhere.
std::optional<std::filesystem::path> find_plugin(const std::filesystem::path& file);

// The address of a function that the plugin exports. The plugin takes common code (log, errors, operations) from the
// program that opens it, so there is one of each. It is never closed: what it made may live to the end of the process.
// Throws Error(config) with the loader's reason when it cannot be opened, Error(internal) when it lacks the function.
void* plugin_function(const std::filesystem::path& file, const char* name);

}  // namespace lockstep
