// Which part of an image becomes the model's input.
#pragma once

#include <cstdint>

#include "data/image/resample.h"
#include "lockstep/base/random.h"

namespace lockstep {

struct ImageSize {
  int64_t height = 1;
  int64_t width = 1;
};

// The crop of one training sample; draws from `random`. Never empty, whatever the image's size.
CropPlan plan_training_crop(Augment augment, ImageSize image, int64_t size, RandomStream& random);

// The crop of evaluation that belongs to `augment`.
CropPlan plan_evaluation_crop(Augment augment, ImageSize image, int64_t size);

}  // namespace lockstep
