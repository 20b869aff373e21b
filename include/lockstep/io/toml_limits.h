// Limits on TOML text before it is parsed: the parser is recursive and keeps everything in memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kMaxTomlBytes = size_t{16} << 20;
inline constexpr size_t kMaxTomlDepth = 16;  // parts of a dotted key, and brackets that are open at the same time

// Throws Error(config) with "path:line: ..." if the text exceeds a limit. The text need not be valid TOML: this
// function tokenizes everything up to the first syntax error as the parser does.
void require_bounded_toml(std::string_view text, const std::string& path);

}  // namespace lockstep
