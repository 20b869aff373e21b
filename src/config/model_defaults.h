// What a model is trained with where nobody says otherwise.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

// One value, as the command line would have it.
struct ModelDefault {
  std::string_view key;  // "section.key"
  std::string_view value;
};

// The values of this model that differ from the built-in ones, which are Inception-v3's: its published recipe's (that
// of models/recipes). None for Inception-v3 and for unknown names.
std::span<const ModelDefault> model_defaults(std::string_view model);

}  // namespace lockstep
