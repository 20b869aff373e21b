// The configuration file: TOML 1.0 text to checked values, each with its line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/key.h"

namespace lockstep {

struct ConfigFileEntry {
  const ConfigKey* key;
  ConfigValue value;  // of the key's type and in its range; paths as written
  int line;           // of the key, from 1
};

// Entries in the order of the text. Throws Error(config) for the first thing that is wrong, as "path:line: ...": TOML
// syntax, a duplicate, an unknown key or section, a key in the wrong section, a value of the wrong type or out of
// range.
std::vector<ConfigFileEntry> parse_config_file(std::string_view text, const std::string& path);

// The list that `text` is in TOML's notation, as a value of this type of list; nothing when it holds items of another
// type, or more than a list. Throws Error(config), naming `where`, when it is no TOML.
std::optional<ConfigValue> parse_toml_list(ConfigType type, std::string_view text, const std::string& where);

}  // namespace lockstep
