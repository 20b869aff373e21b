// The asynchronous checkpoint writer of rank 0. The training thread hands over what to save and goes on; one thread
// copies it to staging memory, then builds, writes and publishes the file. Only the copy is ever waited for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep {

struct WriterOptions {
  std::string directory;         // made if absent; owned by this run (RunLock)
  int keep = 5;                  // newest checkpoints kept; 0 keeps all
  double slow_seconds = 60;      // a write that takes longer is reported once
  int64_t last_saved_step = -1;  // the step resumed from, when its file is in `directory`
};

// How a save ended.
struct SaveResult {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;
  double snapshot_seconds = 0;  // copying to staging memory
  double write_seconds = 0;     // building, writing, verifying and publishing
  std::optional<Error> error;   // nothing was published: checkpoint, or numerics when an array is not finite
};

// All member functions are called from one thread (the training thread); the writer's own thread never calls back.
class CheckpointWriter {
 public:
  // Makes the folder and deletes temporaries that a killed run left. Throws Error(checkpoint) when it cannot.
  explicit CheckpointWriter(WriterOptions options);
  // Waits for the save in flight; a result that nobody has polled is logged if it is an error.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  enum class Start {
    started,
    busy,           // the save before is still being written: this one is skipped, the caller warns
    already_saved,  // this very step is on disk or on its way
  };
  // `contents.arrays` point at the sources, which must stay as they are until wait_copied() returns. `best` also points
  // the link `best` at the file, which retention then spares; that works for a step already saved, too.
  Start start(CheckpointContents contents, bool best = false);

  // Blocks until the sources of the save in flight have been copied; to be called before they change. Returns the
  // seconds waited.
  double wait_copied();

  // The next finished save, oldest first. Also logs, once a save, that one takes longer than slow_seconds.
  std::optional<SaveResult> poll();

  // Blocks until no save is in flight, or for `seconds`; true: idle.
  bool wait_idle(double seconds);

 private:
  enum class Phase { idle, copying, writing };

  void run();
  SaveResult save();
  void copy_sources();
  void publish(SaveResult& result);
  void mark_best(int64_t step) const;
  void warn_if_slow();

  const WriterOptions options_;
  std::vector<float> staging_;  // of the writer's thread

  std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::idle;
  bool stop_ = false;
  CheckpointContents contents_;  // of the save in flight; the writer's thread alone uses it after start()
  bool best_ = false;            // asked for, not yet done
  double started_at_ = 0;
  bool slow_reported_ = false;
  std::deque<SaveResult> results_;
  int64_t last_saved_step_;

  std::thread thread_;  // last: it uses all of the above
};

// Logs a warning when fewer than two checkpoints of this size fit the folder's file system.
void warn_if_space_is_short(const std::string& directory, int64_t checkpoint_bytes);

}  // namespace lockstep
