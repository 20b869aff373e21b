// Where this program lies, and what lies beside it.
#pragma once

#include <filesystem>

namespace lockstep {

// The folder of the running executable; empty where the system does not tell.
std::filesystem::path program_folder();

// Whether the running executable lies in the folder in which it was built. Only then may it use what lies there and in
// its source tree: once it is installed elsewhere, those paths are whoever's who makes such folders.
bool runs_in_build_tree();

}  // namespace lockstep
