// The few numbers that ride at the end of the gradient arena and are summed over ranks with it.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/backend/model_state.h"

namespace lockstep {

// Counts stay exact in float32 up to 2^24 samples a global batch. Flags: how many ranks raised them; every rank sees
// the same sum and so takes the same decision at the same step.
struct StepHeader {
  float samples = 0;  // weight of this rank's samples
  float loss = 0;     // summed over samples, auxiliary heads weighted
  float correct1 = 0, correct5 = 0;
  float stop = 0;        // a signal asked this rank to save and stop, or its time is over
  float save = 0;        // rank 0: a checkpoint is due by the clock
  float not_finite = 0;  // this rank's loss is NaN or infinite
  std::array<float, kStepHeaderElements - 7> reserved{};
};
static_assert(sizeof(StepHeader) == kStepHeaderElements * sizeof(float));

}  // namespace lockstep
