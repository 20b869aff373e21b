// All backends. A new one is a class, a function that makes it and a row here.
#include <vector>

#include "backend/backends.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);
  bool (*is_usable)();
};

// Fastest first.
constexpr Row kBackends[] = {
    {"cuda", make_cuda_backend, [] { return gpu_unavailable_reason().empty(); }},
    {"cpu", make_cpu_backend, [] { return true; }},
    {"reference", make_reference_backend, [] { return true; }},
};

std::vector<std::string_view> usable_backends() {
  std::vector<std::string_view> names;
  for (const Row& row : kBackends) {
    if (row.is_usable()) names.push_back(row.name);
  }
  return names;
}

}  // namespace

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
  for (const Row& row : kBackends) {
    if (row.name == name) return row.make(options);
  }
  fail(ExitCode::config, "there is no backend \"{}\"; there are: {}", name, fmt::join(backend_names(), ", "));
}

std::span<const std::string_view> backend_names() {
  static const std::vector<std::string_view> names = usable_backends();
  return names;
}

}  // namespace lockstep
