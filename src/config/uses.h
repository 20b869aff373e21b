// The conditions under which configuration keys have an effect.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/config/config.h"

namespace lockstep {

// The condition for a set of keys. A key without a row always has an effect.
struct ConfigUse {
  std::string_view keys;  // one or more "section.key", separated by spaces, or "section.*"
  std::string when;       // the condition as text: "optimizer.name = \"adamw\""
  bool (*holds)(const Config&);
};

std::span<const ConfigUse> config_uses();

// Returns the condition without which the key "section.key" has no effect in this configuration, or nullptr if it has
// one.
const ConfigUse* missing_use(const Config& config, std::string_view key);

// Returns whether `keys`, a list as in ConfigUse, contains the key "section.key".
bool names_key(std::string_view keys, std::string_view key);

}  // namespace lockstep
