// A part of a data set for training, the rest for validation.
#pragma once

#include <memory>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

struct SplitOptions {
  double validation_fraction = 0;  // in (0, 1)
  bool validation = false;         // which of the two parts
};

// The samples of `whole` on one side of the split. On which side a sample lies depends on its index alone, so the parts
// are disjoint, hold every sample, and are the same on every rank and in every run, whatever train.seed is; and those
// for validation are among those of any larger fraction. The sizes are near the fraction, as drawing for each sample
// makes them. Throws Error(data) when the part is empty.
std::unique_ptr<DataSource> split_source(std::unique_ptr<DataSource> whole, const SplitOptions& options);

}  // namespace lockstep
