// The control groups of a process, by which containers and batch systems limit it.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace lockstep {

// The directories of the process's group and of every group above it, the mount's own first, for a controller ("cpu",
// "memory"). `membership`: /proc/self/cgroup. Inside a container the path of the outer system may not exist below the
// mount, so a directory may be missing.
std::vector<std::filesystem::path> control_group_directories(const std::filesystem::path& membership,
                                                             const std::filesystem::path& root,
                                                             std::string_view controller);

}  // namespace lockstep
