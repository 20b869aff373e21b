// Lists of words in one text, as tables in the source have them.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep {

// Returns the words, which point into `text`. An empty text has none.
std::vector<std::string_view> split_words(std::string_view text, char separator);

}  // namespace lockstep
