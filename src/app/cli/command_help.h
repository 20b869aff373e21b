// What `trainer --help` prints: short, and no line longer than a terminal is wide.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

using NamesAndMeanings = std::vector<std::pair<std::string, std::string>>;

// Subcommands first, then options, then the names of all keys by section.
std::string short_help(const NamesAndMeanings& subcommands);

// Every key with its type, default, what is allowed and what it means.
std::string keys_help();

}  // namespace lockstep
