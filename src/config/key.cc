#include "lockstep/config/key.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace lockstep {

std::string_view describe(ConfigType type) {
  switch (type) {
    case ConfigType::boolean:
      return "true or false";
    case ConfigType::integer:
      return "an integer";
    case ConfigType::number:
      return "a number";
    case ConfigType::text:
      return "a string";
    case ConfigType::text_list:
      return "a string or a list of strings";
    case ConfigType::integer_list:
      return "a list of integers";
    case ConfigType::number_list:
      return "a list of numbers";
  }
  return "";
}

bool ConfigRange::contains(double value) const {
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

bool ConfigRange::limited() const { return low > -ConfigRange{}.high || high < ConfigRange{}.high; }

std::string ConfigRange::text() const {
  if (high == ConfigRange{}.high) return fmt::format("{} {}", low_open ? "above" : "at least", low);
  return fmt::format("in {}{}, {}{}", low_open ? '(' : '[', low, high, high_open ? ')' : ']');
}

std::string ConfigKey::full_name() const { return fmt::format("{}.{}", section, name); }

std::string ConfigKey::environment_variable() const {
  std::string text = fmt::format("LOCKSTEP_{}_{}", section, name);
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool ConfigKey::allows(std::string_view word) const { return std::ranges::find(allowed, word) != allowed.end(); }

}  // namespace lockstep
