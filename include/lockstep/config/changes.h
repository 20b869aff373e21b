// Compares the configuration of a checkpoint with that of the run that resumes from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/config.h"

namespace lockstep {

// The effect of a changed value on training.
enum class ChangeEffect {
  none,      // training is the same (paths, intervals, limits, logs), or a mismatch of array shapes shows the change
  training,  // training differs, which may be intended; it is reported once
  input,     // the network gets images of another kind than those it was trained on
  model,     // the same weights compute a different function
};

// Returns the effect of the key "section.key". Sections that only configure how a run is executed have no effect.
ChangeEffect change_effect(std::string_view key);

struct ConfigChange {
  std::string key;          // "train.seed"
  std::string before, now;  // as printable TOML
  ChangeEffect effect = ChangeEffect::none;
};

// Returns the keys whose values differ, in the order of the key table, without those that have no effect. `before` is
// TOML text; a key that it lacks, because an older version wrote it, is left out. Throws Error(config), which names
// `where`, if `before` cannot be parsed.
std::vector<ConfigChange> config_changes(std::string_view before, const std::string& where, const Config& now);

}  // namespace lockstep
