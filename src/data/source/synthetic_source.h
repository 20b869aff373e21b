// Made-up images that a model can learn, for benchmarks and first trials.
#pragma once

#include <memory>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

std::unique_ptr<DataSource> open_synthetic(const DataSourceOptions& options);

}  // namespace lockstep
