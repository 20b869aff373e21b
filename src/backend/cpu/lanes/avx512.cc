#define LOCKSTEP_LANES_NAMESPACE avx512_lanes
#define LOCKSTEP_LANES_NAME "lanes:avx512"
#include "backend/cpu/lanes/lane_body.h"

namespace lockstep::cpu {

const LaneKernels& avx512_lane_kernels(DType stored) { return avx512_lanes::kernels_of(stored); }

}  // namespace lockstep::cpu
