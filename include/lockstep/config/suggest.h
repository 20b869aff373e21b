// "did you mean ...?" for keys, sections, variables and options that do not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other, at most `limit` + 1.
size_t edit_distance(std::string_view from, std::string_view to, size_t limit);

// The candidate with the fewest edits; empty when none comes close (about one edit in three characters).
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// Full names of the keys that were probably meant by `section`.`name`, best first: the same name but for case and
// dashes, the same name in other sections, the name other programs use, the nearest spelling. May be empty.
std::vector<std::string> suggest_keys(std::string_view section, std::string_view name);

// "; did you mean a or b?", or nothing.
std::string did_you_mean(const std::vector<std::string>& suggestions);

}  // namespace lockstep
