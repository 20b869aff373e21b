// Writes the checkpoints of rank 0 on a thread of its own. Training waits only until its state has been copied.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/io/file_thread.h"

namespace lockstep {

struct WriterOptions {
  std::string directory;         // owned by this run (RunLock); created if it is missing
  int keep = 5;                  // number of newest checkpoints that retention keeps; 0 keeps all
  double slow_seconds = 60;      // a save that takes longer is reported once
  double give_up_seconds = 600;  // the longest time that the destructor waits for a save
};

// The outcome of a save.
struct SaveResult {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;
  double snapshot_seconds = 0;  // time that wait_copied() waited
  double write_seconds = 0;     // building, writing, verifying and publishing
  double cpu_seconds = 0;       // processor time of the writer's thread, including the copy
  std::optional<Error> error;   // why nothing was published: checkpoint, or numerics if an array is non-finite
};

// Owned by the checkpointer and used by the training thread. Apart from the constructor, no function touches a file. A
// directory that is deleted or moved during the run is created again.
class CheckpointWriter {
 public:
  // Creates the directory and deletes temporary files that a killed run left in it. Throws Error(checkpoint).
  explicit CheckpointWriter(WriterOptions options);
  // Waits for the save in flight. After give_up_seconds it reports that and leaves the thread behind, because an error
  // on its way to main must not wait for a frozen disk. Logs the error of a save that was not polled.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Starts a save; the writer must not be busy. The arrays must not change until wait_copied() returns. `best_step` is
  // the step of the best checkpoint, which retention keeps; if it is the step of this save, the link `best` will point
  // to the file. -1: there is none.
  void start(CheckpointContents contents, int64_t best_step = -1);

  // Lets the link `best` point to the checkpoint of this step, which retention keeps from now on. Does nothing if its
  // save fails, or has failed.
  void mark_best(int64_t step);

  // Returns whether the result of a save has not been polled yet, or the thread is still working.
  bool busy() const { return result_.valid() || !thread_.wait_idle(0); }

  // Blocks until the arrays of the save in flight have been copied.
  void wait_copied();

  // Returns the result of the save if it has finished.
  std::optional<SaveResult> poll();

  // Blocks until nothing is in flight, at most `seconds`. Returns false if something still is. Like poll(), it logs a
  // warning, once per save, if a save takes longer than slow_seconds.
  bool wait_idle(double seconds);

 private:
  void begin(int64_t step);

  // Memory that lasts from save to save. Only the thread uses it, and the thread may outlive the writer.
  struct ThreadMemory {
    std::vector<float> staging;  // the copies of the arrays
    bool links_fail = false;
  };

  const WriterOptions options_;
  const std::shared_ptr<ThreadMemory> memory_ = std::make_shared<ThreadMemory>();
  FileThread thread_{"writer"};
  int64_t step_ = -1;  // of the last save, as the next two
  double started_at_ = 0;
  bool slow_reported_ = false;
  double waited_seconds_ = 0;
  std::future<void> copied_;        // valid until wait_copied()
  std::future<SaveResult> result_;  // valid until poll() returns it
};

// Logs a warning if the disk has no room for two checkpoints of this size.
void warn_if_space_is_short(const std::string& directory, int64_t checkpoint_bytes);

}  // namespace lockstep
