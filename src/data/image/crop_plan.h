// Chooses the part of an image that becomes the input of the model.
#pragma once

#include <cstdint>

#include "data/image/resample.h"
#include "lockstep/base/random.h"

namespace lockstep {

struct ImageSize {
  int64_t height = 1;
  int64_t width = 1;
};

// Returns the crop of a training sample, which it draws from `random`; at least one pixel of any image.
CropPlan plan_training_crop(Augment augment, ImageSize image, int64_t size, RandomStream& random);

// Returns the crop of evaluation that corresponds to `augment`.
CropPlan plan_evaluation_crop(Augment augment, ImageSize image, int64_t size);

}  // namespace lockstep
