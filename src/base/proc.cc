#include "lockstep/base/proc.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace lockstep {

namespace fs = std::filesystem;

std::optional<std::string> read_system_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  try {
    return std::string(std::istreambuf_iterator<char>(file), {});
  } catch (const std::ios_base::failure&) {  // the process has ended since, or it is a directory
    return std::nullopt;
  }
}

std::string_view system_field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(key)) continue;
    line.remove_prefix(std::min(line.find_first_not_of(" \t", key.size()), line.size()));
    if (!line.starts_with(':')) continue;
    return line.substr(std::min(line.find_first_not_of(" \t", 1), line.size()));
  }
  return {};
}

std::optional<ProcessStatus> process_status(const fs::path& process) {
  const std::string stat = read_system_file(process / "stat").value_or("");
  const size_t name_end = stat.rfind(')');  // the program's name, in parentheses, may contain any character
  if (name_end == std::string::npos) return std::nullopt;
  constexpr int kStartTimeField = 22;
  std::istringstream fields(stat.substr(name_end + 1));
  ProcessStatus status;
  fields >> status.state >> status.parent;
  for (int field = 5; field <= kStartTimeField; ++field) fields >> status.start_time;
  return status;
}

std::optional<std::string> process_variable(const fs::path& process, std::string_view name) {
  std::istringstream variables(read_system_file(process / "environ").value_or(""));
  for (std::string variable; std::getline(variables, variable, '\0');) {
    if (variable.size() > name.size() && variable.starts_with(name) && variable[name.size()] == '=') {
      return variable.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
