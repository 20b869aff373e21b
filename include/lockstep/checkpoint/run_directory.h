// The directory of one run: names of checkpoints, the newest whole one, `latest` and `best`, retention.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep {

// "step-00000010.h5"
std::string checkpoint_name(int64_t step);

struct FoundCheckpoint {
  std::string path;
  int64_t step = -1;    // as stored, whatever the name says; -1 if unknown
  std::string problem;  // why the file cannot be whole, naming it; empty when header and length are right
};

// All files named step-*.h5, newest stored step first, those of unknown step last. Temporaries are never looked at.
// A directory that does not exist has none.
std::vector<FoundCheckpoint> find_checkpoints(const std::string& directory);

// Opens the newest whole checkpoint, telling `warn` of each file that is not and was passed over. nullopt: there are
// no checkpoint files. Throws Error(checkpoint) when there are files but none is whole.
using WarningSink = std::function<void(const std::string&)>;
std::optional<CheckpointReader> open_newest_whole(const std::string& directory, const WarningSink& warn);

// The checkpoint that `path` names: the file itself, or of a run's directory its newest whole one by header and length.
// Throws Error(checkpoint) where a directory has none.
std::string checkpoint_at(const std::string& path);

// Points the relative symbolic link `name` ("latest" or "best") in the directory at a checkpoint in it.
void point_at_checkpoint(const std::string& directory, const std::string& name, int64_t step);

// Deletes all but the `keep` newest of the checkpoints up to `step`, sparing that of `best_step`, and what `best`
// points at: the link alone would not do, since some file systems and copies of directories have none. Files of later
// steps (another run's, or before a resume from an older one) and files that are not whole are neither counted nor
// touched. keep 0 keeps all. Returns the paths deleted; what cannot be deleted is logged.
struct Retention {
  int keep = 0;
  int64_t step = 0;        // the one just written
  int64_t best_step = -1;  // -1: none is known
};
std::vector<std::string> apply_retention(const std::string& directory, const Retention& retention);

// Deletes every checkpoint, temporary, `latest` and `best`: for a fresh run with checkpoint.overwrite.
void remove_all_checkpoints(const std::string& directory);

// Deletes temporaries that a killed run left behind. The caller owns the directory (RunLock).
void remove_stale_temporaries(const std::string& directory);

}  // namespace lockstep
