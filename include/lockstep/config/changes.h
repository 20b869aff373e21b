// What differs between the configuration that a checkpoint was trained with and that of the run which goes on from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/config.h"

namespace lockstep {

// What comes of another value.
enum class ChangeEffect {
  none,      // the same training: paths, intervals, limits, logs; and what the arrays' shapes tell by themselves
  training,  // another training, as anybody may want: said once
  input,     // the network is shown other pictures than those it was trained on
  model,     // the same weights compute something else
};

// By "section.key". Keys of sections that only say how a run is carried out have no effect.
ChangeEffect change_effect(std::string_view key);

struct ConfigChange {
  std::string key;          // "train.seed"
  std::string before, now;  // as TOML, fit to be printed
  ChangeEffect effect = ChangeEffect::none;
};

// The keys that have another value, in the order of the key table, but for those without effect. A key that `before`
// lacks (an older version's text) is left out. Throws Error(config), naming `where`, when `before` cannot be read.
std::vector<ConfigChange> config_changes(std::string_view before, const std::string& where, const Config& now);

}  // namespace lockstep
