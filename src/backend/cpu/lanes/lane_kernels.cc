#include "backend/cpu/lanes/lane_kernels.h"

#include <oneapi/dnnl/dnnl.hpp>

namespace lockstep::cpu {

const LaneKernels& lane_kernels(DType stored) {
#if defined(__x86_64__)
  // The value of an instruction set is a bit mask of all sets that it includes.
  const auto allowed = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [&](dnnl::cpu_isa isa) {
    return (allowed & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
  };
  if (has(dnnl::cpu_isa::avx512_core)) return avx512_lane_kernels(stored);
  if (has(dnnl::cpu_isa::avx2)) return avx2_lane_kernels(stored);
#endif
  return baseline_lane_kernels(stored);
}

}  // namespace lockstep::cpu
