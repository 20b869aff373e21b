// Parses a configuration file: TOML 1.0 text into checked values with their line numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/key.h"

namespace lockstep {

struct ConfigFileEntry {
  const ConfigKey* key;
  ConfigValue value;  // has the key's type and is in its range; paths are as written
  int line;           // line of the key, counted from 1
};

// The file whose settings this one extends.
struct ConfigExtension {
  std::string name;  // as written; empty: none
  int line = 0;
};

// Returns the entries in the order of the text and, in `extension` if it is given, the file that the text extends.
// Throws Error(config) with "path:line: ..." for the first error: TOML syntax, a duplicate, an unknown key or section,
// a key in the wrong section, or a value of the wrong type or out of range.
std::vector<ConfigFileEntry> parse_config_file(std::string_view text, const std::string& path,
                                               ConfigExtension* extension = nullptr);

// Returns `classes` and `image_size` of a model file as model.classes and model.image_size, if it has them. Throws as
// parse_config_file() does.
std::vector<ConfigFileEntry> parse_model_sizes(std::string_view text, const std::string& path);

// Parses `text`, a list in TOML notation, as a value of this list type. Returns nothing if items have another type or
// if the text contains more than a list. Throws Error(config), which names `where`, if the text is not valid TOML.
std::optional<ConfigValue> parse_toml_list(ConfigType type, std::string_view text, const std::string& where);

}  // namespace lockstep
