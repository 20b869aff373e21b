// Reads the small files in which Linux describes the system and its processes: /proc and /sys/fs/cgroup.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Returns the contents of such a file, or nothing if it cannot be read.
std::optional<std::string> read_system_file(const std::filesystem::path& path);

// Returns the value of the first line "key:   value" in the text of such a file; empty if there is none.
std::string_view system_field(std::string_view text, std::string_view key);

// A part of /proc/PID/stat, see proc(5).
struct ProcessStatus {
  char state = '?';  // 'T': suspended, 'Z': a zombie
  int parent = 0;
  std::string start_time;  // distinguishes the process from a later one with the same number
};
// In both, `process` is the directory "/proc/PID".
std::optional<ProcessStatus> process_status(const std::filesystem::path& process);
// Returns a variable of the environment with which the process was started.
std::optional<std::string> process_variable(const std::filesystem::path& process, std::string_view name);

}  // namespace lockstep
