// The records that data.bad_records = "skip" has skipped, over all ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"

namespace lockstep {

// One rank's notes as text that may travel, and back. Messages may hold any byte but NUL.
std::string encode_bad_records(std::span<const BadRecordNote> notes);

// The notes of all ranks together: each record once, in the order of the data set, met as often as all ranks met it.
std::vector<BadRecordNote> merge_bad_records(std::span<const std::string> encoded);

}  // namespace lockstep
