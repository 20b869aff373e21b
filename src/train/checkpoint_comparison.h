// Compares the settings with which a checkpoint was trained with those of its use. Only rank 0 calls these functions.
// They log one warning per difference, with both values.
#pragma once

#include <cstdint>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/config/config.h"
#include "lockstep/train/start_state.h"

namespace lockstep {

// Throws Error(config) if samples on which the checkpoint was trained would now be used for evaluation, because a
// larger fraction of the same data is held out.
void check_split(const Config::Data& data, const CheckpointReader& file);

// Throws Error(config) if the network of a model file is defined by another text than that of the checkpoint.
void check_definition(const Config::Model& model, const CheckpointReader& file);

// For a run on `ranks` ranks that resumes from the checkpoint. Returns the number of differences. Throws Error(config)
// for differences that change what the network computes or which kind of images it gets, unless
// checkpoint.allow_changes permits them.
int64_t compare_with_run(const Config& config, int ranks, const DataIdentity& data, const CheckpointReader& file);

// For an evaluation. Throws Error(config) as above for differences that change what the weights compute; another kind
// of images only causes a warning.
void compare_with_evaluation(const Config& config, const CheckpointReader& file);

// For a run that starts with the weights. Training adapts them, so no difference is an error.
void compare_with_fine_tuning(const Config& config, const CheckpointReader& file);

}  // namespace lockstep
