// The reports of `trainer inspect`.
#pragma once

#include <string>

namespace lockstep {

struct Inspection {
  bool whole = false;  // all files are complete and, if verified, finite
  std::string text;    // the report, or what is wrong with a file
};

// Reads the file and verifies its checksum. With `verify`, also decodes every array and reports its range, its norm and
// the number of its non-finite values.
Inspection inspect_checkpoint(const std::string& path, bool verify);

struct CheckpointPair {
  std::string first, second;
};
// Reports for each array that differs the largest difference, the norm of the differences, and the norm of the first
// file's values.
Inspection compare_checkpoints(const CheckpointPair& paths);

}  // namespace lockstep
