// Where this program lies, and what lies beside it.
#pragma once

#include <filesystem>

namespace lockstep {

// The directory of the running executable; empty where the system does not tell.
std::filesystem::path program_directory();

// Whether the running executable lies in the directory in which it was built. Only then may it use what lies there and
// in its source tree: once it is installed elsewhere, those paths are whoever's who makes such directories.
bool runs_in_build_tree();

}  // namespace lockstep
