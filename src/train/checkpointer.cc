#include "lockstep/train/checkpointer.h"

#include <algorithm>
#include <chrono>
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

}  // namespace

Checkpointer::Checkpointer(const Config& config, const CompiledModel& model, CheckpointerOptions options)
    : config_(config), model_(model), options_(std::move(options)), last_save_(monotonic_seconds()) {
  if (!options_.root) return;
  writer_.emplace(WriterOptions{.directory = config.checkpoint.directory,
                                .keep = static_cast<int>(config.checkpoint.keep),
                                .slow_seconds = slow_disk_seconds(config),
                                .give_up_seconds = wait_seconds(config, RunPhase::save)});
  best_ = published_best_ = options_.best;
  saved_step_ = options_.resumed_step;
  const int64_t bytes = estimate_checkpoint_bytes(contents({}, model.state()));
  longest_save_ = kGuessedSeconds + static_cast<double>(bytes) / kGuessedBytesPerSecond;
  warn_if_space_is_short(config.checkpoint.directory, bytes);
  if (!model.backend().host_addressable()) snapshot_.emplace(model);
}

bool Checkpointer::due_by_clock() const {
  const double every = config_.checkpoint.every_seconds;
  return writer_ && every > 0 && monotonic_seconds() - last_save_ >= every;
}

bool Checkpointer::must_stop(double step_seconds) const {
  return writer_ && options_.job_end.must_stop(step_seconds, longest_save_);
}

CheckpointContents Checkpointer::contents(Progress progress, const ModelState& state) const {
  CheckpointContents c;
  c.meta = {.step = progress.step,
            .epoch = progress.position / options_.samples_per_epoch,
            .samples_seen = progress.position,
            .world_size = options_.world_size,
            .global_batch = options_.global_batch,
            .seed = config_.train.seed,
            .model = config_.model.name};
  c.arrays = model_arrays(model_.parameters(), model_.layout(), state, parse_optimizer(config_.optimizer.name));
  progress.best = best_;
  c.training = to_training(progress, config_);
  c.training.insert(options_.training.begin(), options_.training.end());
  c.config = options_.config_text;
  c.classes = options_.classes;
  return c;
}

// Starts a save, unless this step is saved or on its way. Returns false if another save is in flight.
bool Checkpointer::start(const Progress& progress) {
  if (options_.lock && !options_.lock->held()) {
    fail(ExitCode::checkpoint,
         "{} was taken over by another run while this one was suspended; step {} and later ones are not saved",
         config_.checkpoint.directory, progress.step);
  }
  if (has(progress.step)) return true;
  if (in_flight_ || writer_->busy()) return false;
  in_flight_ = progress;
  if (snapshot_) {
    snapshot_->take(*options_.stream);
    snapshot_in_flight_ = true;
  } else {
    writer_->start(contents(progress, model_.state()), best_.step);
  }
  return true;
}

// Passes the snapshot to the writer once its copy has arrived.
void Checkpointer::hand_over() {
  if (!snapshot_in_flight_ || writer_->busy() || !snapshot_->ready()) return;
  snapshot_in_flight_ = false;
  writer_->start(contents(*in_flight_, snapshot_->arenas()), best_.step);
}

void Checkpointer::save(const Progress& progress) {
  if (!writer_) return;
  poll();
  last_save_ = monotonic_seconds();
  if (!has_time()) {
    if (std::exchange(end_reported_, true)) return;
    log_warning("the checkpoint of step {} is skipped: the job ends before it would be written", progress.step);
  } else if (!start(progress) && skipped_++ == 0) {
    log_warning("the checkpoint of step {} is skipped: the one before is still being written", progress.step);
  }
}

bool Checkpointer::save_if_best(const Progress& progress, double score) {
  if (!writer_) return false;  // only rank 0 decides
  poll();                      // a best save that has failed meanwhile no longer counts
  // Not every score is a number: one class alone has no area under the curve.
  if (!(score > best_.score) || !has_time()) return false;
  last_save_ = monotonic_seconds();
  const bool has_file = has(progress.step);
  const BestSave before = std::exchange(best_, {.score = score, .step = progress.step});
  if (!start(progress)) {
    best_ = before;
    if (best_skipped_++ == 0) {
      log_warning("step {} is the best so far, but is not saved: the checkpoint before is still being written",
                  progress.step);
    }
    return false;
  }
  if (has_file) writer_->mark_best(progress.step);
  if (saved_step_ == progress.step) published_best_ = best_;
  return true;
}

void Checkpointer::save_last(const Progress& progress) {
  if (!writer_ || !has_time()) return;
  poll();
  start(progress);
}

void Checkpointer::wait_copied() {
  if (writer_ && !snapshot_) writer_->wait_copied();
}

void Checkpointer::poll(int64_t last_step) {
  if (!writer_) return;
  hand_over();
  if (const auto result = writer_->poll()) handle(*result, last_step);
}

// A failure that ends the run is thrown, and the code that ends the run prints it.
void Checkpointer::handle(const SaveResult& result, int64_t last_step) {
  in_flight_.reset();
  options_.on_end(result);
  report_skipped(result.step);
  const bool is_best = result.step == best_.step;
  if (!result.error) {
    const double seconds = result.snapshot_seconds + result.write_seconds;
    longest_save_ = std::exchange(measured_, true) ? std::max(longest_save_, seconds) : seconds;
    saved_step_ = result.step;
    if (is_best) published_best_ = best_;
    return;
  }
  if (is_best) best_ = published_best_;
  const bool numerics = result.error->code() == ExitCode::numerics;
  if (numerics || config_.checkpoint.on_error == SaveErrorRule::fail || result.step == last_step) throw *result.error;
  log_error("{} (failed saves so far: {})", result.error->what(), ++failures_);
}

// Reports the saves that were skipped while this step was being written. The first of each kind has been reported.
void Checkpointer::report_skipped(int64_t step) {
  const int64_t saves = std::exchange(skipped_, 0), best = std::exchange(best_skipped_, 0);
  if (saves + best < 2) return;
  log_warning("{} checkpoints, {} of them of best states, were skipped while that of step {} was being written",
              saves + best, best, step);
}

void Checkpointer::returned_to(const Progress& progress) {
  if (!writer_) return;
  saved_step_ = progress.step;
  if (best_.step > progress.step) best_ = published_best_ = progress.best;
}

bool Checkpointer::wait_for_save_in_flight(double seconds) {
  if (!writer_) return true;
  const double deadline = monotonic_seconds() + seconds;
  for (hand_over(); snapshot_in_flight_ && monotonic_seconds() < deadline; hand_over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a device that hangs would block a wait for the event
  }
  return !snapshot_in_flight_ && !gave_up_ && writer_->wait_idle(deadline - monotonic_seconds());
}

void Checkpointer::finish(const Progress& progress) {
  if (!writer_) return;
  const double limit = wait_seconds(config_, RunPhase::save);
  const double deadline = monotonic_seconds() + limit;
  const auto wait = [&] {
    gave_up_ = !wait_for_save_in_flight(deadline - monotonic_seconds());
    if (gave_up_) {
      fail(ExitCode::checkpoint,
           "the last checkpoint is still being written after {} s; {} may be damaged or out of reach", limit,
           config_.checkpoint.directory);
    }
    poll(progress.step);
  };
  wait();  // the save of the last state would be skipped while another one is in flight
  if (saved_step_ != progress.step && !has_time()) {  // a save that the end of the job cuts off leaves no checkpoint
    fail(ExitCode::checkpoint,
         "step {} is not saved: the job ends in {:.0f} s and a save takes {:.0f} s; the checkpoints before are whole. "
         "Ask the batch system for an earlier signal or more time",
         progress.step, std::max(options_.job_end.seconds_left(), 0.0), longest_save_);
  }
  start(progress);
  wait();
}

}  // namespace lockstep
