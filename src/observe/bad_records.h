// Merges the lists of records that data.bad_records = "skip" has skipped on each rank.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"

namespace lockstep {

// Encodes one rank's notes as text that can be sent to other ranks. Messages may contain any byte except NUL.
std::string encode_bad_records(std::span<const BadRecordNote> notes);

// Decodes and merges the notes of all ranks. The result contains each record once, in the order of the data set;
// `times` is the sum over all ranks.
std::vector<BadRecordNote> merge_bad_records(std::span<const std::string> encoded);

}  // namespace lockstep
