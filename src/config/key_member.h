// Helpers for the rows of the table of keys: access to the members of Config, and ranges.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/config/key.h"
#include "lockstep/config/words.h"

namespace lockstep {

template <auto Section, auto Member>
using MemberType = std::remove_cvref_t<decltype(std::declval<const Config&>().*Section.*Member)>;

template <auto Section, auto Member>
requires WordEnum<MemberType<Section, Member>> ConfigMember member() {
  using T = MemberType<Section, Member>;
  return {.type = ConfigType::text,
          .get = [](const Config& config) { return ConfigValue(std::string(word(config.*Section.*Member))); },
          .set =
              [](Config& config, ConfigValue value) {  // check_config_value has found the word in kWords<T>
                config.*Section.*Member = find_word<T>(std::get<std::string>(value)).value();
              },
          .words = kWords<T>};
}

template <auto Section, auto Member>
ConfigMember member() {
  using T = MemberType<Section, Member>;
  return {.type = static_cast<ConfigType>(ConfigValue(T{}).index()),
          .get = [](const Config& config) { return ConfigValue(config.*Section.*Member); },
          .set = [](Config& config, ConfigValue value) { config.*Section.*Member = std::get<T>(std::move(value)); }};
}

inline ConfigRange at_least(double low) { return {.low = low}; }
inline ConfigRange above(double low) { return {.low = low, .low_open = true}; }
inline ConfigRange between(double low, double high) { return {.low = low, .high = high}; }
inline ConfigRange zero_to_below_one() { return {.low = 0, .high = 1, .high_open = true}; }
inline ConfigRange above_zero_to_one() { return {.low = 0, .high = 1, .low_open = true}; }

}  // namespace lockstep

// Section, name and member of a key cannot disagree: all three come from the same two words.
#define LOCKSTEP_KEY(section_, name_) \
  .section = #section_, .name = #name_, .member = member<&Config::section_, &decltype(Config::section_)::name_>()
