// Choices that are allowed but unlike every published recipe, in words for `trainer explain`.
#pragma once

#include <string>
#include <vector>

#include "lockstep/config/config.h"

namespace lockstep {

// One sentence for each such choice: the key, its value, what recipes have, and what comes of it.
std::vector<std::string> unusual_choices(const Config& config, int64_t global_batch);

}  // namespace lockstep
