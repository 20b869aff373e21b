// Patterns of paths, as glob(7) has them: * ? [set] {one,other}; a backslash takes the meaning from the character after
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The pattern that matches `path` and nothing else: characters that a pattern gives a meaning have a backslash.
std::string literal_pattern(std::string_view path);

// The paths that a pattern names: itself where such a path exists, whatever characters it has, read with backslashes
// as they stand or as what they escape; else its matches, in no promised order. None where nothing matches.
std::vector<std::string> matching_paths(const std::string& pattern);

// What kept matching_paths() from looking: "/data/private: Permission denied". Empty: nothing did.
std::string unreadable_directory(const std::string& pattern);

}  // namespace lockstep
