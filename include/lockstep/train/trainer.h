// The training loop.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/observe/reporter.h"
#include "lockstep/observe/step_profile.h"
#include "lockstep/observe/step_timer.h"
#include "lockstep/observe/step_trace.h"
#include "lockstep/train/batch_upload.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/device_step_state.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/non_finite_steps.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/rank_context.h"
#include "lockstep/train/schedule.h"
#include "lockstep/train/step_work.h"

namespace lockstep {

enum class RunEnd : uint8_t { finished, stopped };

// Every rank has one. The thread that calls run() runs the steps. main owns the objects on which it is built.
class Trainer {
 public:
  // `evaluator` is null without validation data.
  Trainer(const RankContext& rank, const DataSource& data, Evaluator* evaluator, Checkpointer& checkpointer,
          Reporter& reporter, const Progress& start);

  // Waits for steps in flight.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Collective. Trains for the configured length, or until a stop is requested on any rank. Saves and evaluates during
  // training and at the end. Throws AgreedError(numerics) if the loss or a gradient is non-finite and train.not_finite
  // does not allow to continue.
  RunEnd run();

  // Returns the progress that the host knows: a step counts once its outcome has arrived.
  const Progress& progress() const { return progress_; }
  // On rank 0, returns the time limit that has ended the run; empty if none has.
  const std::string& time_limit_reached() const { return time_limit_; }
  int64_t total_steps() const { return total_steps_; }
  std::span<const Bucket> buckets() const { return work_.buckets(); }
  // Returns when each bucket of the last step was complete, in seconds after the start of the step. Empty on a GPU,
  // where steps are only enqueued.
  std::vector<double> bucket_ready_seconds() const;
  double base_learning_rate() const { return schedule_.base_rate; }  // before schedule and warm-up

 private:
  // Sums over a log interval. Steps with a non-finite loss do not count in the first two.
  struct Window {
    double loss = 0, samples = 0;
    double queue_depths = 0, batches = 0;  // of the loader
  };
  LoaderOptions training_options(int64_t position) const;
  void continue_from(const Progress& progress);
  void step();
  StepInput step_input(const Batch& batch);
  void retire(bool all);
  void retire(const StepOutcome& outcome);
  void skip_non_finite(const StepOutcome& outcome);
  void roll_back();
  bool must_stop();
  double seconds_to_stop() const;
  bool due(int64_t steps) const;
  bool evaluation_due() const;
  bool boundary_is_due() const;
  void save_if_due();
  void wait_for_save_in_flight();
  void evaluate_if_due();
  void evaluate();
  void end_if_no_better(double score);
  void report_if_due();
  void watch_speed_if_due();
  void report_weights();
  void report_bad_records();
  void write_trace();
  void pause_timer();

  bool finished() const { return progress_.step >= total_steps_; }
  int64_t enqueued_position() const { return progress_.position + (enqueued_ - progress_.step) * global_batch_; }
  int64_t schedule_step(int64_t position) const;
  double epoch() const;

  const RankContext rank_;
  const Config& config_;
  const DataSource& data_;
  Evaluator* evaluator_;
  Checkpointer& checkpointer_;
  Reporter& reporter_;
  int64_t global_batch_;
  int64_t total_steps_;  // fewer after early stopping
  Progress progress_;
  int64_t first_step_;    // the step at which this process started
  int64_t enqueued_ = 0;  // the last enqueued step; those after progress_.step are in flight
  LearningRateSchedule schedule_;
  DeviceStepState device_state_;
  StepTimer timer_;
  std::optional<StepProfile> profile_;  // rank 0, if steps are traced
  StepTrace trace_;
  StepWork work_;
  std::optional<Loader> loader_;  // recreated when the run rolls back
  BatchUpload upload_;
  bool stop_ = false, save_ = false, roll_back_ = false;  // what the outcomes of steps require
  Window window_;
  int64_t evaluated_at_ = -1;  // step of the last evaluation
  NonFiniteSteps non_finite_;
  std::string time_limit_;
  double started_ = 0, step_began_ = 0, longest_step_ = 0;  // seconds
};

}  // namespace lockstep
