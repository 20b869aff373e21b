// Suggestions for unknown keys, variables and options.
#pragma once

#include "lockstep/base/nearest_word.h"

namespace lockstep {

// Returns the full names of the keys that were probably meant by `section`.`name`, best first: the same name except for
// case and dashes, the same name in other sections, the key with this name in other programs, the nearest spelling. The
// result may be empty.
std::vector<std::string> suggest_keys(std::string_view section, std::string_view name);

}  // namespace lockstep
