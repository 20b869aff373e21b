// What `trainer inspect` prints about a checkpoint.
#pragma once

#include <string>

namespace lockstep {

struct Inspection {
  bool whole = false;
  std::string text;  // the report; of a file that is not whole, why
};

// Reads the file and checks its checksum; `verify` also decodes every array and reports its range, its norm and how
// many of its values are not finite (arrays with such values make the file not whole).
Inspection inspect_checkpoint(const std::string& path, bool verify);

// What differs between two checkpoints, array by array: the largest difference, and the norm of the differences beside
// that of the first file's values. `whole` when both files are.
struct CheckpointPair {
  std::string first, second;
};
Inspection compare_checkpoints(const CheckpointPair& paths);

}  // namespace lockstep
