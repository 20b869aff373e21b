// Numbers and their nouns in messages.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace lockstep {

// "1 file", "2 files"
template <std::integral Count>
std::string counted(Count count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// "once", "2 times"
template <std::integral Count>
std::string counted_times(Count count) {
  return count == 1 ? "once" : fmt::format("{} times", count);
}

}  // namespace lockstep
