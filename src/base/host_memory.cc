#include "lockstep/base/host_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "base/control_groups.h"
#include "lockstep/base/parse_number.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// proc_meminfo(5): "MemTotal:       24683652 kB".
std::map<std::string, int64_t> read_meminfo(const fs::path& path) {
  std::map<std::string, int64_t> bytes;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    int64_t kilobytes = 0;
    if (fields >> name >> kilobytes && name.ends_with(':')) bytes[name.substr(0, name.size() - 1)] = kilobytes * 1024;
  }
  return bytes;
}

// The tightest limit of the groups around this process: memory.max of version 2 ("max": none), memory.limit_in_bytes of
// version 1.
std::optional<int64_t> control_group_limit(const HostMemoryFiles& files) {
  std::optional<int64_t> limit;
  for (const fs::path& directory : control_group_directories(files.membership, files.control_groups, "memory")) {
    for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
      const auto text = read_control(directory / name);
      const auto bytes = text ? parse_number<int64_t>(text->substr(0, text->find('\n'))) : std::nullopt;
      if (bytes && *bytes > 0) limit = std::min(limit.value_or(*bytes), *bytes);
    }
  }
  return limit;
}

}  // namespace

HostMemory host_memory(const HostMemoryFiles& files) {
  HostMemory memory;
  const auto of_system = read_meminfo(files.meminfo);
  const auto at = [&](const char* name) {
    const auto found = of_system.find(name);
    return found == of_system.end() ? int64_t{-1} : found->second;
  };
  if (at("MemTotal") > 0) memory.total = at("MemTotal") + std::max<int64_t>(0, at("SwapTotal"));
  memory.available = at("MemAvailable");
  if (const auto limit = control_group_limit(files); limit && memory.total > 0) {
    memory.total = std::min(memory.total, *limit);
    memory.available = std::min(memory.available, *limit);
  }
  rlimit own{};  // of this process (ulimit -v)
  if (::getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY) {
    memory.available = std::min(memory.available, static_cast<int64_t>(own.rlim_cur));
  }
  return memory;
}

}  // namespace lockstep
