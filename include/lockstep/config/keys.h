// The one table of all configuration keys. It drives the file parser, range checks, environment, command line, the
// effective configuration and the reference manual, so a key is added by one row (and its member in config.h).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lockstep/config/key.h"

namespace lockstep {

// All keys, section by section in the order of the manual.
std::span<const ConfigKey> config_keys();
// In the same order, without repetition.
std::vector<std::string_view> config_sections();
// nullptr: no such key.
const ConfigKey* find_config_key(std::string_view section, std::string_view name);
const ConfigKey* find_config_key(std::string_view full_name);

}  // namespace lockstep
