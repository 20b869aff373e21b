// What a checkpoint was trained with, beside what is to be done with it. On rank 0; differences are one warning each,
// with both values.
#pragma once

#include <cstdint>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/config/config.h"
#include "lockstep/train/start_state.h"

namespace lockstep {

// Samples that the file was trained on must not be evaluated on, as some would be if more of the same data were kept
// for that now. Throws Error(config).
void check_split(const Config::Data& data, const CheckpointReader& file);

// For a run that goes on from the checkpoint. Returns the number of differences. Throws Error(config) for those that
// change what the network computes or is shown, unless checkpoint.allow_changes lets them be.
int64_t compare_with_run(const StartParts& parts, const CheckpointReader& file);

// For an evaluation: what changes what the weights compute is refused likewise; other pictures are only said.
void compare_with_evaluation(const Config& config, const CheckpointReader& file);

// For a run that starts with the weights: training adapts them, so nothing is refused.
void compare_with_fine_tuning(const Config& config, const CheckpointReader& file);

}  // namespace lockstep
