#include "lockstep/base/plugin.h"

#include <dlfcn.h>

#include "lockstep/base/error.h"

namespace lockstep {

std::optional<std::filesystem::path> find_plugin(const std::filesystem::path& file) {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& candidate : {folder / file, folder / ".." / "lib" / "lockstep" / file,
                                std::filesystem::path(LOCKSTEP_BUILT_PLUGINS) / file}) {
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
