// The table of all configuration keys. The file parser, range checks, environment, command line, effective
// configuration and reference manual all use it, so a new key needs only one row (and a member in config.h).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lockstep/config/key.h"

namespace lockstep {

// Returns all keys, section by section in the order of the manual.
std::span<const ConfigKey> config_keys();
// Returns the names of all sections in the same order.
std::vector<std::string_view> config_sections();
// Returns the key "section.key", or nullptr if there is none.
const ConfigKey* find_config_key(std::string_view full_name);

}  // namespace lockstep
