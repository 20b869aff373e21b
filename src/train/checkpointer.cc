#include "lockstep/train/checkpointer.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/train/deadlines.h"
#include "lockstep/train/model_arrays.h"
#include "lockstep/train/optimizer.h"

namespace lockstep {
namespace {

// The assumed duration of a save before one has been measured.
constexpr double kGuessedSeconds = 1, kGuessedBytesPerSecond = 50e6;

constexpr std::chrono::milliseconds kLookAtSnapshot{1};

}  // namespace

Checkpointer::Checkpointer(const Config& config, const CompiledModel& model, CheckpointerOptions options)
    : config_(config), model_(model), options_(std::move(options)), last_save_(monotonic_seconds()), longest_save_(0) {
  if (!options_.root) return;
  const double slow_seconds = phase_limits(config, RunPhase::save).warn_seconds;  // 0 means never
  writer_.emplace(
      WriterOptions{.directory = config.checkpoint.directory,
                    .keep = static_cast<int>(config.checkpoint.keep),
                    .slow_seconds = slow_seconds > 0 ? slow_seconds : std::numeric_limits<double>::infinity(),
                    .give_up_seconds = wait_seconds(config, RunPhase::save),
                    .last_saved_step = options_.resumed_step,
                    .best_step = options_.best.step});
  best_ = published_best_ = options_.best;
  saved_step_ = options_.resumed_step;
  const int64_t bytes = estimate_checkpoint_bytes(contents({}, model.state(), best_));
  longest_save_ = kGuessedSeconds + static_cast<double>(bytes) / kGuessedBytesPerSecond;
  warn_if_space_is_short(config.checkpoint.directory, bytes);
  if (!model.backend().host_addressable()) snapshot_.emplace(model);
}

bool Checkpointer::due_by_clock() const {
  const double every = config_.checkpoint.every_seconds;
  return writer_ && every > 0 && monotonic_seconds() - last_save_ >= every;
}

bool Checkpointer::must_stop(double step_seconds) const {
  return writer_ && options_.job_end.known() &&
         lockstep::must_stop(options_.job_end.seconds_left(), {.step = step_seconds, .save = longest_save_});
}

// A save that is cut off by the end of the job would leave only a temporary file, so it is not started.
void Checkpointer::require_time(const Progress& progress) const {
  const double left = options_.job_end.seconds_left();
  if (left >= longest_save_) return;
  fail(
      ExitCode::checkpoint,
      "step {} is not saved: the job ends in {:.0f} s and a save takes {:.0f} s; the checkpoints before are whole. Ask "
      "the batch system for an earlier signal or more time",
      progress.step, std::max(left, 0.0), longest_save_);
}

CheckpointContents Checkpointer::contents(Progress progress, const ModelState& state, const BestSave& best) const {
  CheckpointContents c;
  c.meta = {.step = progress.step,
            .epoch = progress.position / options_.samples_per_epoch,
            .samples_seen = progress.position,
            .world_size = options_.world_size,
            .global_batch = options_.global_batch,
            .seed = config_.train.seed,
            .model = config_.model.name};
  for (const ModelArray& a :
       model_arrays(model_.parameters(), model_.layout(), state, parse_optimizer(config_.optimizer.name))) {
    c.arrays.push_back({a.path, a.shape, a.data});
  }
  progress.best = best;
  c.training = to_training(progress, config_);
  c.training.insert(options_.training.begin(), options_.training.end());
  c.config = options_.config_text;
  c.classes = options_.classes;
  return c;
}

CheckpointWriter::Start Checkpointer::start(const Progress& progress, const BestSave& best) {
  if (options_.lock && !options_.lock->held()) {
    fail(ExitCode::checkpoint,
         "{} was taken over by another run while this one was suspended; step {} and later ones are not saved",
         config_.checkpoint.directory, progress.step);
  }
  const bool is_best = best.step == progress.step;
  if (!snapshot_) return writer_->start(contents(progress, model_.state(), best), is_best);
  // The writer reads the snapshot, so only one save may be in flight.
  if (snapshot_under_way_ || !writer_->wait_idle(0)) return CheckpointWriter::Start::busy;
  snapshot_->take(*options_.stream);
  snapshot_under_way_ = progress;
  snapshot_is_best_ = is_best;
  return CheckpointWriter::Start::started;
}

// Passes the snapshot to the writer once its copy has arrived.
void Checkpointer::hand_over_snapshot() {
  if (!snapshot_under_way_ || !snapshot_->ready()) return;
  writer_->start(contents(*snapshot_under_way_, snapshot_->arenas(), best_), snapshot_is_best_);
  snapshot_under_way_.reset();
}

void Checkpointer::save(const Progress& progress) {
  if (!writer_) return;
  last_save_ = monotonic_seconds();
  if (options_.job_end.seconds_left() < longest_save_) {
    if (std::exchange(end_reported_, true)) return;
    log_warning("the checkpoint of step {} is skipped: the job ends before it would be written", progress.step);
    return;
  }
  if (start(progress, best_) == CheckpointWriter::Start::busy && skipped_++ == 0) {
    log_warning("the checkpoint of step {} is skipped: the one before is still being written", progress.step);
  }
}

// Reports the skipped saves after the save that was in flight then. The first skip of each kind has already been
// reported.
void Checkpointer::report_skipped(int64_t step) {
  const int64_t saves = std::exchange(skipped_, 0), best = std::exchange(best_skipped_, 0);
  if (saves + best < 2) return;
  log_warning("{} checkpoints, {} of them of best states, were skipped while that of step {} was being written",
              saves + best, best, step);
}

bool Checkpointer::save_if_best(const Progress& progress, double score) {
  if (!writer_) return false;  // only rank 0 decides
  poll();                      // a best save that has failed meanwhile no longer counts
  // Not every score is a number: one class alone has no area under the curve.
  if (!(score > best_.score) || options_.job_end.seconds_left() < longest_save_) return false;
  last_save_ = monotonic_seconds();
  const BestSave best{.score = score, .step = progress.step};
  if (start(progress, best) != CheckpointWriter::Start::busy) {
    best_ = best;
    if (saved_step_ == best.step) published_best_ = best;
    return true;
  }
  if (best_skipped_++ == 0) {
    log_warning("step {} is the best so far, but is not saved: the checkpoint before is still being written",
                progress.step);
  }
  return false;
}

void Checkpointer::save_last(const Progress& progress) {
  if (writer_ && options_.job_end.seconds_left() >= longest_save_) start(progress, best_);
}

double Checkpointer::wait_copied() {
  if (!writer_ || snapshot_) return 0;
  const double waited = writer_->wait_copied();
  last_wait_ = std::max(last_wait_, waited);
  return waited;
}

// A failure that ends the run is thrown, and the code that ends the run prints it.
void Checkpointer::take(SaveResult result, int64_t last_step) {
  result.snapshot_seconds = std::exchange(last_wait_, 0);
  options_.on_end(result);
  report_skipped(result.step);
  const double seconds = result.snapshot_seconds + result.write_seconds;
  const bool is_best = result.step == best_.step;
  if (!result.error) {
    if (is_best) published_best_ = best_;
    longest_save_ = measured_ ? std::max(longest_save_, seconds) : seconds;
    measured_ = true;
    saved_step_ = result.step;
    return;
  }
  if (is_best) best_ = published_best_;
  const bool numerics = result.error->code() == ExitCode::numerics;
  if (numerics || config_.checkpoint.on_error == SaveErrorRule::fail || result.step == last_step) throw *result.error;
  log_error("{} (failed saves so far: {})", result.error->what(), ++failures_);
}

void Checkpointer::poll(int64_t last_step) {
  if (!writer_) return;
  hand_over_snapshot();
  while (auto result = writer_->poll()) take(std::move(*result), last_step);
}

void Checkpointer::returned_to(const Progress& progress) {
  if (!writer_) return;
  saved_step_ = progress.step;
  if (best_.step > progress.step) best_ = published_best_ = progress.best;
  writer_->returned_to(progress.step);
}

bool Checkpointer::wait_for_save_in_flight(double seconds) {
  if (!writer_) return true;
  const double deadline = monotonic_seconds() + seconds;
  for (hand_over_snapshot(); snapshot_under_way_ && monotonic_seconds() < deadline; hand_over_snapshot()) {
    std::this_thread::sleep_for(kLookAtSnapshot);  // poll with a deadline, because the device may hang
  }
  return !snapshot_under_way_ && !gave_up_ && writer_->wait_idle(deadline - monotonic_seconds());
}

void Checkpointer::finish(const Progress& progress) {
  if (!writer_) return;
  const double limit = wait_seconds(config_, RunPhase::save);
  const double deadline = monotonic_seconds() + limit;
  auto wait = [&] {
    if (snapshot_under_way_) snapshot_->wait();
    hand_over_snapshot();
    if (writer_->wait_idle(deadline - monotonic_seconds())) return;
    gave_up_ = true;
    fail(ExitCode::checkpoint,
         "the last checkpoint is still being written after {} s; {} may be damaged or out of reach", limit,
         config_.checkpoint.directory);
  };
  wait();  // for a save in flight, so that the save of the last state is not skipped
  poll(progress.step);
  if (saved_step_ != progress.step) require_time(progress);
  start(progress, best_);
  wait();
  poll(progress.step);
}

}  // namespace lockstep
