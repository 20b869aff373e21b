// Suggestions ("did you mean ...?") for unknown keys, sections, variables and options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns the number of edits (insertion, deletion, replacement, swap of neighbours) that turn one word into the other,
// or `limit` + 1 if it is larger than `limit`.
size_t edit_distance(std::string_view from, std::string_view to, size_t limit);

// Returns the candidate with the fewest edits, or an empty string if none is similar (about one edit per three
// characters).
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// Returns the full names of the keys that were probably meant by `section`.`name`, best first: the same name except for
// case and dashes, the same name in other sections, the key with this name in other programs, the nearest spelling. The
// result may be empty.
std::vector<std::string> suggest_keys(std::string_view section, std::string_view name);

// Returns "; did you mean a or b?", or an empty string if there are no suggestions.
std::string did_you_mean(const std::vector<std::string>& suggestions);

}  // namespace lockstep
