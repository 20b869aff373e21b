// Numbers from text that somebody wrote: options, environment variables, file contents.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace lockstep {

// The number that `text` is from its first byte to its last, in the form that std::from_chars takes: no spaces, no
// "+", no suffix. Nothing when the text is anything else, when the value does not fit T, or when it is not finite.
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
