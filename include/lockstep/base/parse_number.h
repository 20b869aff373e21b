// Parses numbers in text from users: options, environment variables, file contents.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace lockstep {

// Parses the whole of `text` as a number in the form of std::from_chars: no spaces, no "+", no suffix. Returns nothing
// if the text is anything else, if the value does not fit T, or if it is non-finite.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  if constexpr (std::floating_point<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

}  // namespace lockstep
