// The conditions under which configuration keys have an effect.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/config/config.h"

namespace lockstep {

// The condition for a set of keys. A key without a row always has an effect.
struct ConfigUse {
  std::string_view keys;  // one or more "section.key", separated by spaces, or "section.*"
  std::string_view when;  // the condition as text: "optimizer.name = \"adamw\""
  bool (*holds)(const Config&);

  bool covers(std::string_view section, std::string_view name) const;
};

std::span<const ConfigUse> config_uses();

}  // namespace lockstep
