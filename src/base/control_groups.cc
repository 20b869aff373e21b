#include "base/control_groups.h"

#include <fmt/format.h>

#include <sstream>

#include "lockstep/base/proc.h"

namespace lockstep {

namespace fs = std::filesystem;

std::vector<fs::path> control_group_directories(const fs::path& membership, const fs::path& root,
                                                std::string_view controller) {
  std::vector<fs::path> found;
  std::istringstream lines(read_system_file(membership).value_or(""));
  // cgroups(7): "hierarchy:controllers:path"; version 2 has hierarchy 0 and names no controllers.
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    fs::path directory = version_2 ? root : root / controller;
    found.push_back(directory);
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) found.push_back(directory /= part);
  }
  return found;
}

}  // namespace lockstep
