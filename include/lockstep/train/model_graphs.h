// The graphs that a configuration asks for, and how they are compiled.
#pragma once

#include <cstdint>

#include "lockstep/backend/backend.h"
#include "lockstep/config/config.h"
#include "lockstep/graph/executable.h"
#include "lockstep/graph/graph.h"
#include "lockstep/graph/model_builder.h"

namespace lockstep {

// Returns the model options of the configuration for a graph with `batch_size` samples.
ModelOptions model_options(const Config& config, int64_t batch_size, bool training);

// Returns the element type in which layers compute according to train.precision.
DType compute_type(const Config& config);

// Returns the drawn graph of a training step of `batch_size` samples, with the rates of 0 of optimizer.lr_factors.
Graph training_graph(const Config& config, int64_t batch_size);
// Returns that of an evaluation; `training` has the parameters of the training graph, which may be more.
Graph evaluation_graph(const Config& config, int64_t batch_size, const ParameterTable& training);

// Return how these graphs are compiled: with `pixels` if the device does a part of the loader's work, on bytes. `ranks`
// train together. The layout must outlive the options.
CompileOptions training_options(const Config& config, int ranks, const Backend& backend);
CompileOptions evaluation_options(const Config& config, const ParameterLayout& layout, const Backend& backend);

}  // namespace lockstep
