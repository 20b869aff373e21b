#define LOCKSTEP_LANES_NAMESPACE baseline_lanes
#define LOCKSTEP_LANES_NAME "lanes:baseline"
#include "backend/cpu/lanes/lane_body.h"

namespace lockstep::cpu {

const LaneKernels& baseline_lane_kernels(DType stored) { return baseline_lanes::kernels_of(stored); }

}  // namespace lockstep::cpu
