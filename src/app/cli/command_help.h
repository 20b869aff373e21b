// The text of `trainer --help`. It is short, and no line is wider than a terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

using NamesAndMeanings = std::vector<std::pair<std::string, std::string>>;

// Returns the short help: subcommands, options, and the names of all keys by section.
std::string short_help(const NamesAndMeanings& subcommands);

// Returns the help of every key: type, default, allowed values, and meaning.
std::string keys_help();

}  // namespace lockstep
