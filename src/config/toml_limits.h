// Bounds on the TOML text that is handed to the parser, which is recursive and keeps all it reads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kLargestToml = size_t{16} << 20;  // bytes
inline constexpr size_t kDeepestToml = 16;  // parts of a dotted key; lists, inline tables and headers open at once

// Throws Error(config), as "path:line: ...", for a text that exceeds one of the bounds. Any text may come: what the
// parser reads before its first syntax error has been looked at in the same way.
void require_bounded_toml(std::string_view text, const std::string& path);

}  // namespace lockstep
