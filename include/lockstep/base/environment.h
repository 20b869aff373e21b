// The variables of the environment, which tests replace.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep {

// Returns the value of an environment variable, if it is set. Tests pass their own.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;
EnvironmentLookup process_environment();

}  // namespace lockstep
