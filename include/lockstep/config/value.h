// Values of configuration keys: from text, checked, and printed. Errors are Error(config) that start with `where`
// ("digits.toml:12", "command line", ...) and name the key.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/config/key.h"

namespace lockstep {

// The text of a value given on the command line or in the environment, by the key's type. The whole text must match:
// true or false; a decimal number as std::from_chars reads it, finite (1e3 is an integer, 1e-3 is not); strings as they
// are; lists with commas between the items, an empty text being the empty list, or in TOML's notation: ["a,b", "c"].
ConfigValue parse_config_value(const ConfigKey& key, std::string_view text, const std::string& where);

// The range or the allowed words of the key.
void check_config_value(const ConfigKey& key, const ConfigValue& value, const std::string& where);

// Makes a value of a path key absolute against `folder`; other keys' values come back unchanged. A leading ~ and a $
// are refused: nothing expands them here, and a folder of that name is never what was meant. Where the key takes
// patterns, only what `value` holds is one: the folder stands for itself, whatever characters its name has.
ConfigValue resolve_config_paths(const ConfigKey& key, ConfigValue value, const std::string& folder,
                                 const std::string& where);

// Strings must be UTF-8, or the value could not be written as TOML.
void check_config_encoding(const ConfigKey& key, const ConfigValue& value, const std::string& where);

// TOML text of a value; numbers in the shortest form that reads back the same.
std::string config_value_toml(const ConfigValue& value);

// `text` between quotes, fit for a message: as printable() has it, cut at 60 bytes.
std::string quote_for_message(std::string_view text);

// The integer equal to `value`, where there is one and doubles still tell it from its neighbours.
bool exact_integer(double value, int64_t& integer);

}  // namespace lockstep
