#include "lockstep/config/key.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace lockstep {

std::string_view describe(ConfigType type) {
  constexpr std::string_view kTexts[] = {
      "true or false",      "an integer",       "a number", "a string", "a string or a list of strings",
      "a list of integers", "a list of numbers"};
  static_assert(std::size(kTexts) == std::variant_size_v<ConfigValue>);
  return kTexts[static_cast<size_t>(type)];
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
