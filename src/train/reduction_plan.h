// Plans the all-reduce of a model's gradients: the buckets, and the element type on the wire.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lockstep/comm/transport/bucket_plan.h"
#include "lockstep/comm/transport/gradient_reducer.h"
#include "lockstep/config/config.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// Returns the gradient arena, which the buckets divide.
std::span<float> gradients_of(const CompiledModel& model);

std::vector<Bucket> reduction_plan(const CompiledModel& model, const Config& config);

// Returns the wire format for comm.gradient_dtype, or nothing for float32 and for a single rank.
std::optional<WireFormat> wire_format(const CompiledModel& model, const Config& config, int ranks);

}  // namespace lockstep
