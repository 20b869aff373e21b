// The directory of one run: names of checkpoints, the newest complete one, the links `latest` and `best`, retention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep {

// Returns "step-00000010.h5" for step 10.
std::string checkpoint_name(int64_t step);

struct FoundCheckpoint {
  std::string path;
  int64_t step = -1;    // the stored step, which may differ from the name; -1 if unknown
  std::string problem;  // why the file is not complete; empty if header and length are right
};

// Returns all files named step-*.h5, the highest stored step first, unknown steps last. A directory that does not exist
// has none.
std::vector<FoundCheckpoint> find_checkpoints(const std::string& directory);

// Opens the newest complete checkpoint. Logs a warning for each damaged file that it skips. Returns nullopt if there
// are no checkpoint files. Throws Error(checkpoint) if there are files but none is complete.
std::optional<CheckpointReader> open_newest_whole(const std::string& directory);

// Returns the checkpoint that `path` names: `path` itself, or the newest complete file (by header and length) if it is
// the directory of a run. Throws Error(checkpoint) if the directory has none.
std::string checkpoint_at(const std::string& path);

// Lets the relative symbolic link `name` ("latest" or "best") in the directory point to the checkpoint of this step.
void point_at_checkpoint(const std::string& directory, const std::string& name, int64_t step);

struct Retention {
  int keep = 0;            // 0 keeps all
  int64_t step = 0;        // the step that has just been saved
  int64_t best_step = -1;  // -1 if it is unknown
};
// Deletes all but the `keep` newest of the checkpoints up to `step`. Never deletes that of `best_step` or that to which
// the link `best` points; some file systems and copies of directories have no links. Files of later steps (of another
// run, or written before a run went back) and damaged files are not counted and not deleted. A file that cannot be
// deleted is logged.
void apply_retention(const std::string& directory, const Retention& retention);

// Deletes all checkpoints, temporary files and links, for a fresh run with checkpoint.overwrite.
void remove_all_checkpoints(const std::string& directory);

// Deletes temporary files that a killed run left behind. The caller must own the directory (RunLock).
void remove_stale_temporaries(const std::string& directory);

}  // namespace lockstep
