// A part of a data set for training, the rest for validation.
#pragma once

#include <memory>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

struct SplitOptions {
  double validation_fraction = 0;  // in (0, 1)
  bool validation = false;         // which of the two parts
};

// The samples of `whole` on one side of the split. The side of a sample depends on its index alone, so the parts are
// disjoint, contain every sample, and are the same on every rank, in every run and for every train.seed. The validation
// samples are a subset of those of any larger fraction. The sizes only approximate the fraction, because each sample is
// drawn separately. Throws Error(data) if the part is empty.
std::unique_ptr<DataSource> split_source(std::unique_ptr<DataSource> whole, const SplitOptions& options);

}  // namespace lockstep
