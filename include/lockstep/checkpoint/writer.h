// The asynchronous checkpoint writer of rank 0. The training thread hands over what to save and goes on; one thread
// copies it to staging memory, then builds, writes and publishes the file. Only the copy is ever waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/io/file_thread.h"

namespace lockstep {

struct WriterOptions {
  std::string directory;         // made if absent; owned by this run (RunLock)
  int keep = 5;                  // newest checkpoints kept; 0 keeps all
  double slow_seconds = 60;      // a write that takes longer is reported once
  double give_up_seconds = 600;  // the destructor waits no longer for a disk that does not answer
  int64_t last_saved_step = -1;  // the step resumed from, when its file is in `directory`
  int64_t best_step = -1;        // the best one so far, which retention spares
};

// How a save ended.
struct SaveResult {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;
  double snapshot_seconds = 0;  // copying to staging memory
  double write_seconds = 0;     // building, writing, verifying and publishing
  double cpu_seconds = 0;       // processor time of the writer's thread, from the copy on
  std::optional<Error> error;   // nothing was published: checkpoint, or numerics when an array is not finite
};

// All member functions are called from one thread (the training thread), and after the constructor none of them touches
// a file; the writer's own thread never calls back. A directory that is deleted or moved meanwhile is made again.
class CheckpointWriter {
 public:
  // Makes the directory and deletes temporaries that a killed run left. Throws Error(checkpoint) when it cannot.
  explicit CheckpointWriter(WriterOptions options);
  // Waits for the save in flight, up to give_up_seconds: then its thread is left to itself, which is said, so that an
  // error on its way to main is not held up without end. A result that nobody has polled is logged if it is an error.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  enum class Start {
    started,
    busy,           // the save before is still being written: this one is skipped, the caller warns
    already_saved,  // this very step is on disk or on its way
  };
  // `contents.arrays` point at the sources, which must stay as they are until wait_copied() returns. `best` also points
  // the link `best` at the file, and retention spares it from then on; that works for a step already saved, too.
  Start start(CheckpointContents contents, bool best = false);

  // Blocks until the sources of the save in flight have been copied; to be called before they change. Returns the
  // seconds waited.
  double wait_copied();

  // The next finished save, oldest first. Also logs, once a save, that one takes longer than slow_seconds.
  std::optional<SaveResult> poll();

  // The run has gone back to the checkpoint of this step: what was saved after it is to be written again. Between
  // saves.
  void returned_to(int64_t step);

  // Blocks until no save is in flight, or for `seconds`; true: idle.
  bool wait_idle(double seconds);

 private:
  class Worker;  // the state both threads share, and what the writer's thread does
  static std::shared_ptr<Worker> make_worker(WriterOptions options);

  std::shared_ptr<Worker> worker_;
  FileThread thread_;
};

// Logs a warning when fewer than two checkpoints of this size fit the directory's file system.
void warn_if_space_is_short(const std::string& directory, int64_t checkpoint_bytes);

}  // namespace lockstep
