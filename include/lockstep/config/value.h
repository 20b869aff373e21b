// Parses, checks and prints values of configuration keys. The functions throw Error(config); the message starts with
// `where` ("digits.toml:12", "command line", ...) and names the key.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/config/key.h"

namespace lockstep {

// Parses a value from the command line or the environment by the type of the key. The whole text must match: true or
// false; a finite decimal number as std::from_chars reads it (1e3 is an integer, 1e-3 is not); a string as it is; a
// list with commas between its items or in TOML notation (["a,b", "c"]). An empty text is the empty list.
ConfigValue parse_config_value(const ConfigKey& key, std::string_view text, const std::string& where);

// Checks the value against the range or the allowed words of the key.
void check_config_value(const ConfigKey& key, const ConfigValue& value, const std::string& where);

// Makes the value of a path key absolute, relative to `folder`, and returns values of other keys unchanged. A leading ~
// and any $ are errors, because nothing expands them here and a directory of that name is never intended. If the key
// takes patterns, only `value` is a pattern; `folder` is taken literally, whatever characters its name contains.
ConfigValue resolve_config_paths(const ConfigKey& key, ConfigValue value, const std::string& directory,
                                 const std::string& where);

// Checks that strings are UTF-8; otherwise the value could not be written as TOML.
void check_config_encoding(const ConfigKey& key, const ConfigValue& value, const std::string& where);

// Returns the value as TOML text. Numbers have the shortest form that parses to the same value.
std::string config_value_toml(const ConfigValue& value);

// Returns `text` in quotes for a message: made printable by printable() and cut at 60 bytes.
std::string quote_for_message(std::string_view text);

// Converts `value` to the equal integer. Returns false if there is none, or if its magnitude exceeds 2^53, where
// doubles cannot represent every integer.
bool exact_integer(double value, int64_t& integer);

}  // namespace lockstep
