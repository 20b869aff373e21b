// Suggestions ("did you mean ...?") for misspelt words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr size_t kMaxWordLength = 64;  // a longer word cannot be a misspelling

// Returns how many edits a misspelling of the word may have: about one per three characters.
size_t allowed_edits(std::string_view word);

// Returns the number of edits (insertion, deletion, replacement, swap of neighbours) that turn one word into the other,
// or `limit` + 1 if it is larger than `limit`.
size_t edit_distance(std::string_view from, std::string_view to, size_t limit);

// Returns the candidate with the fewest edits, or an empty string if none is similar (about one edit per three
// characters).
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// Returns "; did you mean a or b?", or an empty string if there are no suggestions.
std::string did_you_mean(std::vector<std::string> suggestions);
// The same for the nearest candidate.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
