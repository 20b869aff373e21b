// The CUDA backend against the reference backend in float64, over the shared operation cases, in every precision. Left
// out where there is no usable GPU.
#include "test/backend/lowered_cases.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// Where kernels run on the host (cuda_on_host), the reference backend stands in for cuDNN and cuBLAS: nothing to
// compare.
bool left_to_libraries(const OpCase& op_case) {
#ifdef LOCKSTEP_KERNELS_ON_HOST
  return std::holds_alternative<Conv2d>(op_case.steps[0].op) || std::holds_alternative<Linear>(op_case.steps[0].op);
#else
  return op_case.steps.empty();
#endif
}

struct Precision {
  DType compute;
  bool tf32;
  double bound;  // a few roundings to 24, 11, 8 and 11 bits
};
constexpr Precision kPrecisions[] = {
    {DType::f32, false, 1e-5}, {DType::f32, true, 2e-3}, {DType::bf16, false, 2e-2}, {DType::f16, false, 3e-3}};

}  // namespace

TEST_CASE("operations on a GPU agree with the reference backend, in every precision", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  for (const Precision& precision : kPrecisions) {
    const auto gpu = make_backend("cuda", {.tf32 = precision.tf32});
    for (const OpCase& op_case : op_cases()) {
      if (left_to_libraries(op_case) || (precision.compute != DType::f32 && computes_in_float32(op_case))) continue;
      check_lowered(*gpu, op_case, precision.compute, precision.bound);
    }
  }
}
