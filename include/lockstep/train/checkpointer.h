// When to save, what to save, and what to do when it fails; the writing itself is CheckpointWriter's.
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

// The best checkpoint so far, where checkpoint.keep_best is set.
struct BestSave {
  double score = -1;  // of the evaluation at its step; -1: not known
  int64_t step = -1;  // -1: there is none
};

struct CheckpointerOptions {
  bool root = true;  // only rank 0 writes; on the others every call does nothing
  int world_size = 1;
  int64_t global_batch = 0;
  int64_t samples_per_epoch = 1;
  std::string config_text;                        // stored in every checkpoint
  std::vector<std::string> classes;               // names of the outputs, stored as well
  std::map<std::string, TrainingValue> training;  // beside what the progress says
  int64_t resumed_step = -1;                      // already on disk in this run's folder; -1: none
  BestSave best;                                  // of the run before, in this folder
  JobEnd job_end;                                 // no save is started that would not end before
  Stream* stream = nullptr;                       // on which the state changes; needed where the host cannot read it
  const RunLock* lock = nullptr;  // rank 0's, where there is one: without it nothing may be saved any more
  // Told of every save that has ended, failed ones too, before a failure is thrown.
  std::function<void(const SaveResult&)> on_end = [](const SaveResult&) {};
};

// Owned by main, used by the training thread; config and program must outlive it.
class Checkpointer {
 public:
  Checkpointer(const Config& config, const CompiledModel& model, CheckpointerOptions options);

  // Whether checkpoint.every_seconds have passed since the last call of save().
  bool due_by_clock() const;

  // Rank 0: whether the run must stop for the last save to end before the job does, when a step takes so long.
  bool must_stop(double step_seconds) const;

  // Starts a save of the state as it is now. When the one before is still being written, it is skipped with a warning.
  // Throws Error(checkpoint) when another run has taken the folder over.
  void save(const Progress& progress);

  // As save() where the score is higher than that of the best checkpoint, and the link `best` points at it from then
  // on. False: it is not the best, or it was skipped. A best save that fails leaves the one before the best.
  bool save_if_best(const Progress& progress, double score);

  // On rank 0.
  const BestSave& best() const { return best_; }

  // As save(), for the last state: finish() saves it when the one before is still being written.
  void save_last(const Progress& progress);

  // To be called before the state changes. Returns the seconds that the training thread waited for the copy.
  double wait_copied();

  // Passes the saves that have ended since the last call to on_end; snapshot_seconds is the training thread's wait. A
  // failure is shown; it is thrown instead, as Error(checkpoint), when checkpoint.on_error is "fail" or the save was of
  // `last_step`, and as Error(numerics) when the state was not finite.
  void poll(int64_t last_step = -1);

  // The run has gone back to this checkpoint of its folder: later ones are to be saved anew. No save is in flight.
  void returned_to(const Progress& progress);

  // Gives the save in flight, if there is one, so long to be published. False: it is still being written.
  bool wait_for_save_in_flight(double seconds);

  // Saves this last state, waits until it is published, and polls. Throws Error(checkpoint) when it could not be saved,
  // or when the job ends before it could be.
  void finish(const Progress& progress);

 private:
  CheckpointContents contents(const Progress& progress, const ModelState& state, const BestSave& best) const;
  void report_skipped(int64_t step);
  void require_time(const Progress& progress) const;
  void hand_over_snapshot();
  CheckpointWriter::Start start(const Progress& progress, const BestSave& best);
  void take(SaveResult result, int64_t last_step);

  const Config& config_;
  const CompiledModel& model_;
  CheckpointerOptions options_;
  std::optional<Snapshot> snapshot_;  // rank 0, where the host cannot read the state
  std::optional<Progress> snapshot_under_way_;
  bool snapshot_is_best_ = false;
  std::optional<CheckpointWriter> writer_;  // rank 0
  double last_save_;                        // monotonic seconds
  double last_wait_ = 0;                    // seconds waited for the copy of the save in flight
  double longest_save_;                     // seconds, as measured; a guess before the first
  bool measured_ = false;
  int64_t saved_step_ = -1;  // the last one published
  BestSave best_;            // asked for, or published
  BestSave best_before_;
  int64_t skipped_ = 0, best_skipped_ = 0;  // saves that came due during the one in flight
  bool end_reported_ = false;
  int64_t failures_ = 0;
  bool gave_up_ = false;  // the last save has been waited for as long as its limit allows
};

}  // namespace lockstep
