// What the bundled recipes (models/recipes) make of each model, for programs that count or time a training step. A test
// compares it with the recipes.
#pragma once

#include <string_view>

#include "lockstep/models/models.h"
#include "lockstep/ops/pixels.h"

namespace lockstep::test {

// The recipe that trains the model. Throws std::out_of_range for a model that has none.
std::string_view recipe_of(std::string_view model);

// The options of a training step by this recipe; Inception-v3 has 1000 classes, without the recipe's one for
// background.
ModelOptions recipe_options(std::string_view model, int64_t batch);

// What the device does to the bytes of its images.
PreparePixels recipe_pixels(std::string_view model);

}  // namespace lockstep::test
