// The parameters' start values.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/config/words.h"
#include "lockstep/tensor/parameter_table.h"

namespace lockstep {

// Fills `values` (the parameter's elements) as a pure function of (seed, parameter name). Weights are drawn from the
// truncated normal that their model names, or with InitRule::fan_in from one of deviation sqrt(2 / fan_in) for
// convolutions (He et al. 2015) and sqrt(1 / fan_in) for linear layers. All other parameters start constant.
void initialize_parameter(const Parameter& parameter, InitRule rule, uint64_t seed, std::span<float> values);

}  // namespace lockstep
