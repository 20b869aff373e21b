// Describes settings that are allowed but differ from every published recipe, for `trainer explain`.
#pragma once

#include <string>
#include <vector>

#include "lockstep/config/config.h"

namespace lockstep {

// Returns one sentence for each such setting: the key, its value, the value in recipes, and the consequence.
std::vector<std::string> unusual_choices(const Config& config, int64_t global_batch);

}  // namespace lockstep
