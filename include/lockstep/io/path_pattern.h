// Patterns of paths, as glob(7) has them: * ? [set] {one,other}; a backslash makes the next character literal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns the pattern that matches only `path`: its special characters get a backslash.
std::string literal_pattern(std::string_view path);

// Returns the paths that a pattern names. If a path of exactly this name exists, with backslashes as characters or as
// escapes, it is the only one; otherwise these are the matches, in any order. May be empty.
std::vector<std::string> matching_paths(const std::string& pattern);

// Returns what matching_paths() could not read: "/data/private: Permission denied". Empty if it read everything.
std::string unreadable_directory(const std::string& pattern);

}  // namespace lockstep
