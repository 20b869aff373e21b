// The location of this program.
#pragma once

#include <filesystem>

namespace lockstep {

// The directory of the running executable; empty if it is unknown.
std::filesystem::path program_directory();

// Whether the running executable is in the directory in which it was built. Only then may it use files there and in its
// source tree: once it is installed elsewhere, anybody may have created directories with those names.
bool runs_in_build_tree();

}  // namespace lockstep
