// Decides when and what to save, and handles failed saves. CheckpointWriter writes the files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/run_lock.h"
#include "lockstep/checkpoint/writer.h"
#include "lockstep/config/config.h"
#include "lockstep/train/compiled_model.h"
#include "lockstep/train/host_state.h"
#include "lockstep/train/job_end.h"
#include "lockstep/train/progress.h"

namespace lockstep {

struct CheckpointerOptions {
  bool root = true;  // only rank 0 writes; on other ranks every call does nothing
  int world_size = 1;
  int64_t global_batch = 0;
  int64_t samples_per_epoch = 1;
  std::string config_text;                        // stored in every checkpoint
  std::vector<std::string> classes;               // names of the outputs, stored in every checkpoint
  std::map<std::string, TrainingValue> training;  // stored in addition to the progress
  int64_t resumed_step = -1;                      // the step from which this run resumed, in its directory; -1: none
  BestSave best;                                  // the best checkpoint that is already in the directory
  JobEnd job_end;                                 // a save that would not finish before this time is not started
  Stream* stream = nullptr;       // the stream that changes the state; required if the host cannot read the state
  const RunLock* lock = nullptr;  // on rank 0, the lock of the directory; if it is lost, nothing may be saved any more
  // Called for every finished save, also for failed ones, before a failure is thrown.
  std::function<void(const SaveResult&)> on_end = [](const SaveResult&) {};
};

// Owned by main and used by the training thread. The configuration and the model must outlive it.
class Checkpointer {
 public:
  Checkpointer(const Config& config, const CompiledModel& model, CheckpointerOptions options);

  // Returns whether checkpoint.every_seconds have passed since the last call of save().
  bool due_by_clock() const;

  // On rank 0, returns whether the run must stop now so that the last save finishes before the job ends, if the steps
  // until then take `step_seconds`.
  bool must_stop(double step_seconds) const;

  // Starts a save of the current state. If another save is still being written, it is skipped with a warning. Throws
  // Error(checkpoint) if another run has taken over the directory.
  void save(const Progress& progress);

  // Saves as save() does if the score is higher than that of the best checkpoint; the link `best` then points to the
  // new one. Returns false if the score is not higher or the save was skipped. If the save fails, the previous best
  // checkpoint remains the best.
  bool save_if_best(const Progress& progress, double score);

  // Valid on rank 0 only.
  const BestSave& best() const { return best_; }

  // Saves the last state as save() does. If another save is still being written, finish() will save the state.
  void save_last(const Progress& progress);

  // Must be called before the state changes: waits until it has been copied.
  void wait_copied();

  // Handles the save that has finished since the last call, if any: passes it to on_end and logs its failure. A failure
  // is thrown instead as Error(checkpoint) if checkpoint.on_error is "fail" or the save was that of `last_step`, and as
  // Error(numerics) if the state was non-finite.
  void poll(int64_t last_step = -1);

  // Records that the run has rolled back to this checkpoint of its directory, so that later steps are saved again. No
  // save may be in flight.
  void returned_to(const Progress& progress);

  // Waits at most `seconds` until the save in flight, if any, is published. Returns false if it is still being written.
  bool wait_for_save_in_flight(double seconds);

  // Saves the last state, waits until it is published, and polls. Throws Error(checkpoint) if the state cannot be
  // saved, or not before the job ends.
  void finish(const Progress& progress);

 private:
  CheckpointContents contents(Progress progress, const ModelState& state) const;
  bool has_time() const { return options_.job_end.seconds_left() >= longest_save_; }
  bool has(int64_t step) const { return step == saved_step_ || (in_flight_ && in_flight_->step == step); }
  bool start(const Progress& progress);
  void hand_over();
  void handle(const SaveResult& result, int64_t last_step);
  void report_skipped(int64_t step);

  const Config& config_;
  const CompiledModel& model_;
  CheckpointerOptions options_;
  std::optional<Snapshot> snapshot_;        // on rank 0, if the host cannot read the state
  std::optional<CheckpointWriter> writer_;  // on rank 0
  std::optional<Progress> in_flight_;       // of the save in flight
  bool snapshot_in_flight_ = false;         // its snapshot has not arrived yet
  int64_t saved_step_ = -1;                 // the last published step
  BestSave best_;                           // the best checkpoint that is in flight or published
  BestSave published_best_;                 // restored if the best save in flight fails
  double last_save_;                        // time of the last save() in monotonic_seconds()
  double longest_save_ = 0;                 // longest duration of a save in seconds; an estimate before the first save
  bool measured_ = false;                   // longest_save_ has been measured
  int64_t skipped_ = 0, best_skipped_ = 0;  // numbers of saves skipped because of the one in flight
  bool end_reported_ = false;
  int64_t failures_ = 0;
  bool gave_up_ = false;  // the wait for the last save has timed out
};

}  // namespace lockstep
