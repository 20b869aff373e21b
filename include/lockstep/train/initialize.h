// Initial values of parameters.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/config/config.h"
#include "lockstep/config/words.h"
#include "lockstep/tensor/parameter_table.h"
#include "lockstep/train/compiled_model.h"
#include "lockstep/train/host_state.h"

namespace lockstep {

// Fills `values` (the elements of the parameter) as a pure function of seed and parameter name. Weights are drawn from
// the truncated normal distribution that the model specifies. With InitRule::fan_in, its standard deviation is sqrt(2 /
// fan_in) for convolutions (He et al. 2015) and sqrt(1 / fan_in) for linear layers. All other parameters start with a
// constant.
void initialize_parameter(const Parameter& parameter, InitRule rule, uint64_t seed, std::span<float> values);

// All parameters of a model, by model.init and train.seed.
void initialize_parameters(const Config& config, const CompiledModel& model, const HostState& host);

}  // namespace lockstep
