// Default values of configuration keys that depend on the model.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

// The default of one key, written as on the command line.
struct ModelDefault {
  std::string_view key;  // "section.key"
  std::string_view value;
};

// Returns the defaults of this model that differ from the built-in ones. They are those of the model's published recipe
// (the one in models/recipes). The list is empty for Inception-v3, whose values are the built-in defaults, and for
// unknown names.
std::span<const ModelDefault> model_defaults(std::string_view model);

}  // namespace lockstep
