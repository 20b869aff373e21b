#include "lockstep/base/host_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include "base/control_groups.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/proc.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Returns a field of proc_meminfo(5) in bytes, or -1 if it is missing.
int64_t field_bytes(std::string_view meminfo, std::string_view key) {
  const std::string_view value = system_field(meminfo, key);  // "24683652 kB"
  const auto kilobytes = parse_number<int64_t>(value.substr(0, value.find(' ')));
  return kilobytes ? *kilobytes * 1024 : -1;
}

// Returns the lowest limit in the files of these names, in all groups around this process. "max" is no limit.
int64_t lowest_limit(const HostMemoryFiles& files, std::initializer_list<const char*> names) {
  int64_t limit = std::numeric_limits<int64_t>::max();
  for (const fs::path& directory : control_group_directories(files.membership, files.control_groups, "memory")) {
    for (const char* name : names) {
      const std::string text = read_system_file(directory / name).value_or("");
      const auto bytes = parse_number<int64_t>(std::string_view(text).substr(0, text.find('\n')));
      if (bytes && *bytes >= 0) limit = std::min(limit, *bytes);
    }
  }
  return limit;
}

}  // namespace

HostMemory host_memory(const HostMemoryFiles& files) {
  const std::string meminfo = read_system_file(files.meminfo).value_or("");
  const int64_t installed = field_bytes(meminfo, "MemTotal");
  HostMemory memory;
  if (installed > 0) {
    // The names are those of versions 2 and 1 of control groups. Version 1 limits memory and swap together.
    const int64_t limit = lowest_limit(files, {"memory.max", "memory.limit_in_bytes"});
    const int64_t swap = std::max<int64_t>(0, field_bytes(meminfo, "SwapTotal"));
    memory.total = std::min(std::min(installed, limit) + std::min(swap, lowest_limit(files, {"memory.swap.max"})),
                            lowest_limit(files, {"memory.memsw.limit_in_bytes"}));
    memory.available = std::min(field_bytes(meminfo, "MemAvailable"), limit);
    // In this mode the kernel refuses allocations beyond a limit, whether or not their memory is used.
    if (read_system_file(files.overcommit).value_or("").starts_with('2')) {
      const int64_t commit_limit = field_bytes(meminfo, "CommitLimit");
      memory.total = std::min(memory.total, commit_limit);
      memory.available = std::min(memory.available, commit_limit - field_bytes(meminfo, "Committed_AS"));
    }
  }
  rlimit own{};  // of this process (ulimit -v)
  if (::getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY) {
    memory.available = std::min(memory.available, static_cast<int64_t>(own.rlim_cur));
  }
  return memory;
}

}  // namespace lockstep
