// Where a run stands between two steps.
#pragma once

#include <cstdint>

namespace lockstep {

// A function of the global sample stream, the same on every rank.
struct Progress {
  int64_t step = 0;
  int64_t position = 0;  // samples of the global stream consumed so far
  int64_t updates = 0;   // steps that changed the weights (a skipped step does not)
};

}  // namespace lockstep
