#include "lockstep/base/plugin.h"

#include <dlfcn.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/program_path.h"

namespace lockstep {

std::optional<std::filesystem::path> find_plugin(const std::filesystem::path& file) {
  const std::filesystem::path directory = program_directory();
  std::vector<std::filesystem::path> candidates = {directory / file, directory / ".." / "lib" / "lockstep" / file};
  if (runs_in_build_tree()) candidates.push_back(std::filesystem::path(LOCKSTEP_BUILT_PLUGINS) / file);
  std::error_code ignored;
  for (const std::filesystem::path& candidate : candidates) {
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return {};
}

void* plugin_function(const std::filesystem::path& file, const char* name) {
  const auto path = find_plugin(file);
  if (!path) fail(ExitCode::config, "{} is not installed beside the program", file.string());
  void* const plugin = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!plugin) fail(ExitCode::config, "{}", ::dlerror());
  void* const function = ::dlsym(plugin, name);
  require(function != nullptr, "{} has no function {}", path->string(), name);
  return function;
}

}  // namespace lockstep
