// Fields of CSV (RFC 4180).
#pragma once

#include <string>

namespace lockstep {

// Returns the text, in quotes if necessary.
inline std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace lockstep
