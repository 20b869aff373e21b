#define LOCKSTEP_LANES_NAMESPACE avx2_lanes
#define LOCKSTEP_LANES_NAME "lanes:avx2"
#include "backend/cpu/lanes/lane_body.h"

namespace lockstep::cpu {

const LaneKernels& avx2_lane_kernels(DType stored) { return avx2_lanes::kernels_of(stored); }

}  // namespace lockstep::cpu
