// How the gradients of a program are reduced: cut into buckets, and in which numbers they travel.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lockstep/comm/transport/bucket_plan.h"
#include "lockstep/comm/transport/gradient_reducer.h"
#include "lockstep/config/config.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// The arena that the buckets divide.
std::span<float> gradients_of(const CompiledModel& model);

std::vector<Bucket> reduction_plan(const CompiledModel& model, const Config& config);

// What comm.gradient_dtype asks for; a single rank has no wire.
std::optional<WireFormat> wire_format(const CompiledModel& model, const Config& config, int ranks);

}  // namespace lockstep
