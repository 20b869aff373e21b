// A row of the table of configuration keys.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/config/config.h"

namespace lockstep {

using ConfigValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>, std::vector<int64_t>,
                                 std::vector<double>>;
// The type of a value, in the order of ConfigValue's alternatives.
enum class ConfigType { boolean, integer, number, text, text_list, integer_list, number_list };
std::string_view describe(ConfigType type);  // returns "an integer", ...

// An interval of numbers. An open end is not part of it.
struct ConfigRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;

  bool contains(double value) const;
  bool limited() const;
  std::string text() const;  // "at least 1", "above 0", "in [0, 1)"
};

// How a value is turned into an absolute path. Inputs and input patterns are relative to the file that contains them,
// outputs are relative to the working directory, and an output pattern may contain placeholders (placeholders.h).
// Values listed in `allowed` are words and not paths.
enum class PathRole { none, input, input_pattern, output_pattern };

// Access to the member of Config that holds a key's value.
struct ConfigMember {
  ConfigType type;
  ConfigValue (*get)(const Config&);
  void (*set)(Config&, ConfigValue);  // for an enum, the value must be one of `words`
  std::span<const std::string_view> words = {};
};

struct ConfigKey {
  std::string_view section;
  std::string_view name;
  ConfigMember member;
  std::string_view unit = {};
  ConfigRange range = {};
  std::vector<std::string_view> allowed = {};  // the words that this version supports; empty: any value
  PathRole path = PathRole::none;
  std::string_view meaning;
  std::vector<std::string_view> also = {};  // names of the key in other programs, only for suggestions

  std::string full_name() const;             // "train.seed"
  std::string environment_variable() const;  // "LOCKSTEP_TRAIN_SEED"
  bool allows(std::string_view word) const;
};

}  // namespace lockstep
