// The backends there are. A new one is a class, a maker and a row here.
#include <array>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);
};

// Fastest first: `auto` takes the first that works here.
constexpr Row kBackends[] = {
    {"cpu", make_cpu_backend},
    {"reference", make_reference_backend},
};

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kBackends)> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kBackends[i].name;
  return names;
}();

}  // namespace

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
  for (const Row& row : kBackends) {
    if (row.name == name) return row.make(options);
  }
  fail(ExitCode::config, "there is no backend \"{}\"; this build has: {}", name, fmt::join(backend_names(), ", "));
}

std::span<const std::string_view> backend_names() { return kNames; }

}  // namespace lockstep
