#include "lockstep/base/environment.h"

#include <cstdlib>

namespace lockstep {

EnvironmentLookup process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

}  // namespace lockstep
