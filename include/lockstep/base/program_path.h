// Where this program lies, and what lies beside it.
#pragma once

#include <filesystem>

namespace lockstep {

// The directory of the running executable; empty where the system does not tell.
std::filesystem::path program_directory();

// Whether the running executable lies in the directory in which it was built. Only then may it use what lies there and
// in its source tree: once it is installed elsewhere, anybody may have made directories of those names.
bool runs_in_build_tree();

}  // namespace lockstep
