// When a key of the configuration has an effect.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/config/config.h"

namespace lockstep {

// A key that is in no row always has one.
struct ConfigUse {
  std::string_view keys;  // "section.key", several with spaces between, or "section.*"
  std::string_view when;  // in words: "optimizer.name = \"adamw\""
  bool (*holds)(const Config&);

  bool covers(std::string_view section, std::string_view name) const;
};

std::span<const ConfigUse> config_uses();

}  // namespace lockstep
