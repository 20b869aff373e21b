// The control groups of a process: what containers and batch systems limit it by.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The directories of the process's group and of every group above it, the mount's own first, for a controller ("cpu",
// "memory"). `membership`: /proc/self/cgroup. Inside a container the path of the outer system may not exist below the
// mount, so a directory may be missing.
std::vector<std::filesystem::path> control_group_directories(const std::filesystem::path& membership,
                                                             const std::filesystem::path& root,
                                                             std::string_view controller);

// The text of such a directory's file; nothing when it cannot be read.
std::optional<std::string> read_control(const std::filesystem::path& path);

}  // namespace lockstep
