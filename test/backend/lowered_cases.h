// The operation cases in the precisions of mixed-precision runs, against the reference backend.
#pragma once

#include "test/backend/op_cases.h"

namespace lockstep::test {

// Whether a mixed-precision run computes the operation in float32 all the same.
bool computes_in_float32(const OpCase& op_case);

// Checks that every value of the case, computed in `compute` (f32: as it stands), is within the relative error `bound`
// of the reference backend's in float64, and that operations compute the same bits in place.
void check_lowered(const Backend& backend, const OpCase& op_case, DType compute, double bound);

}  // namespace lockstep::test
