// The parameters' start values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "lockstep/tensor/parameter_table.h"

namespace lockstep {

// model.init: `model` draws weights from the truncated normals their model names; `fan_in` from truncated normals of
// deviation sqrt(2 / fan_in) for convolutions (He et al. 2015) and sqrt(1 / fan_in) for linear layers. Everything else
// is constant in both.
enum class InitRule : uint8_t { model, fan_in };
InitRule parse_init_rule(std::string_view name);  // "truncated_normal" | "fan_in"

// Fills `values` (the parameter's elements): a pure function of (seed, parameter name).
void initialize_parameter(const Parameter& parameter, InitRule rule, uint64_t seed, std::span<float> values);

}  // namespace lockstep
