// What a row of the table of configuration keys says about one key.
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
// In the order of ConfigValue.
enum class ConfigType { boolean, integer, number, text, text_list, integer_list, number_list };
std::string_view describe(ConfigType type);  // "an integer", ...

// An interval of numbers; an end that is open does not belong to it.
struct ConfigRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;

  bool contains(double value) const;
  bool limited() const;
  std::string text() const;  // "at least 1", "above 0", "in [0, 1)"
};

// How a text is turned into an absolute path: inputs, and patterns of them, relative to the file they are written in,
// outputs to the working folder. Values listed in `allowed` are words, not paths.
enum class PathRole { none, input, input_pattern, output };

struct ConfigMember {
  ConfigType type;
  ConfigValue (*get)(const Config&);
  void (*set)(Config&, ConfigValue);  // of an enum: one of `words`
  std::span<const std::string_view> words = {};
};

struct ConfigKey {
  std::string_view section;
  std::string_view name;
  ConfigMember member;
  std::string_view unit = {};
  ConfigRange range = {};
  std::vector<std::string_view> allowed = {};  // empty: any; what this version offers
  PathRole path = PathRole::none;
  std::string_view meaning;
  std::vector<std::string_view> also = {};  // names in other programs; only to suggest the right one

  std::string full_name() const;             // "train.seed"
  std::string environment_variable() const;  // "LOCKSTEP_TRAIN_SEED"
  bool allows(std::string_view word) const;
};

}  // namespace lockstep
