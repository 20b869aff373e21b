// Sorted numbers as text: "0-3,8".
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>

namespace lockstep {

// Numbers have at least `width` digits, with zeros in front.
template <class Integer>
std::string number_ranges(std::span<const Integer> numbers, size_t width = 1) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{:0{}}", i == 0 ? "" : ",", numbers[i], width);
    if (last > i) text += fmt::format("-{:0{}}", numbers[last], width);
    i = last + 1;
  }
  return text;
}

}  // namespace lockstep
