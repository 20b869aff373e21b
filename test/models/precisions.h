// The precisions in which models are compiled for GPUs that are not here.
#pragma once

#include "lockstep/tensor/tensor.h"

namespace lockstep::test {

struct Precision {
  const char* name;  // as in train.precision
  DType compute;
  bool tf32;
};
inline constexpr Precision kPrecisions[] = {{"float32", DType::f32, false},
                                            {"tf32", DType::f32, true},
                                            {"bf16", DType::bf16, false},
                                            {"fp16", DType::f16, false}};

}  // namespace lockstep::test
