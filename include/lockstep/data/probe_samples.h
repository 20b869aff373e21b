// Tries the first samples of a rank before anything is trained, so that data that training refuses are found at once.
#pragma once

#include "lockstep/data/loader.h"

namespace lockstep {

// Reads, decodes and transforms up to `samples` of this rank's first batch, as a Loader with these options would.
// Throws what the loader would throw: BadRecord or Error(data), naming the record. Under BadRecords::skip, a bad record
// is no error as long as one record is good.
void probe_samples(const DataSource& source, const LoaderOptions& options, int64_t samples);

}  // namespace lockstep
