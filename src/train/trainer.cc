#include "lockstep/train/trainer.h"

#include <algorithm>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/random.h"
#include "lockstep/train/deadlines.h"
#include "lockstep/train/host_state.h"
#include "lockstep/train/loading.h"
#include "lockstep/train/start_state.h"
#include "train/audit.h"
#include "train/run_plan.h"

namespace lockstep {
namespace {

// The number of steps that may be in flight when the host handles an outcome. On a GPU, the host must not wait for the
// last step, or the device would idle.
int steps_ahead(const Backend& backend) { return backend.host_addressable() ? 0 : 2; }

// Events cannot time what happens inside of a captured step.
bool can_profile(const RankContext& rank) {
  const bool captures = !rank.backend().host_addressable() && rank.config.device.graph != GraphCapture::off;
  return rank.group.is_root() && rank.config.log.trace_steps > 0 && !captures;
}

}  // namespace

Trainer::Trainer(const RankContext& rank, const DataSource& data, Evaluator* evaluator, Checkpointer& checkpointer,
                 Reporter& reporter, const Progress& start)
    : rank_(rank),
      config_(rank.config),
      data_(data),
      evaluator_(evaluator),
      checkpointer_(checkpointer),
      reporter_(reporter),
      global_batch_(rank.model.batches().training * rank.group.size() * config_.train.accumulate),
      total_steps_(lockstep::total_steps(config_.train, {data.size(), global_batch_}, start)),
      first_step_(start.step),
      schedule_(make_learning_rate_schedule(
          config_, {data.size(), global_batch_, schedule_step(start.position) + total_steps_ - start.step})),
      device_state_(rank.backend(), rank.model, config_, steps_ahead(rank.backend())),
      trace_(rank.group, reporter.files(),
             {.path = config_.checkpoint.directory.empty() ? "" : config_.checkpoint.directory + "/trace.json",
              .steps = config_.log.trace_steps,
              .profile = can_profile(rank) ? &profile_.emplace(rank.backend(), rank.stream) : nullptr}),
      work_(rank, checkpointer, device_state_, timer_, trace_),
      upload_(rank.backend(), training_options(0), rank.batch_use),
      non_finite_(rank.group, rank.model, config_.train) {
  continue_from(start);
}

LoaderOptions Trainer::training_options(int64_t position) const {
  return loader_options(config_, {.group = rank_.group,
                                  .batch_size = rank_.model.batches().training,
                                  .workers = rank_.loader_threads,
                                  .start_position = position,
                                  .model = &rank_.model});
}

// Sets everything that depends on the progress. No step may be in flight.
void Trainer::continue_from(const Progress& progress) {
  progress_ = progress;
  enqueued_ = progress.step;
  device_state_.restart(rank_.stream, progress.updates, progress.loss_scale);
  rank_.model.training().copy_weights(rank_.stream, rank_.model.training_arenas());  // no update wrote them
  loader_.emplace(data_, training_options(progress.position));
  evaluated_at_ = -1;
  stop_ = save_ = roll_back_ = false;
  window_ = {};
}

// Ranks that end together have enqueued the same steps. These must finish before the memory and the connections that
// they use are destroyed.
Trainer::~Trainer() {
  try {
    if (enqueued_ > progress_.step) rank_.stream.wait();
  } catch (const std::exception& error) {
    log_warning("waiting for the steps under way: {}", error.what());
  }
}

// Returns the step at which a run that always had this global batch would be at this position. So the epochs of the
// schedule stay correct if a run continues with another global batch; otherwise it is the step itself.
int64_t Trainer::schedule_step(int64_t position) const { return position / global_batch_; }

RunEnd Trainer::run() {
  started_ = monotonic_seconds();
  timer_.restart();
  // If the previous run stopped where an evaluation was due, or was killed during one, evaluate now.
  if (!finished() && evaluation_due()) evaluate();
  while (!stop_ && enqueued_ < total_steps_) {
    step();
    retire(boundary_is_due());
    if (trace_.complete()) write_trace();
    if (roll_back_) {
      roll_back();
      continue;
    }
    if (due(config_.train.audit_every)) audit_parameters(rank_.group, rank_.model);
    if (due(config_.log.histogram_steps)) report_weights();
    // With keep_best, the evaluation comes first, so that a save of the same step can be marked as the best. Otherwise
    // the save comes first, so that it is written during the evaluation.
    if (config_.checkpoint.keep_best) evaluate_if_due();
    save_if_due();
    evaluate_if_due();
  }
  retire(true);
  if (stop_ || !config_.checkpoint.keep_best) checkpointer_.save_last(progress_);
  if (!stop_ && evaluated_at_ != progress_.step) evaluate();
  write_trace();
  report_bad_records();
  rank_.watchdog.progress(RunPhase::save, progress_.step);
  checkpointer_.finish(progress_);
  return stop_ ? RunEnd::stopped : RunEnd::finished;
}

// Enqueues one step: read, compute, reduce, update. It does not wait for the device; retire() handles the outcome.
void Trainer::step() {
  rank_.watchdog.progress(enqueued_ == first_step_ ? RunPhase::first_step : RunPhase::train, enqueued_);
  step_began_ = monotonic_seconds();
  trace_.begin_step(enqueued_ + 1);
  for (int64_t micro = 0; micro < config_.train.accumulate; ++micro) {
    work_.enter(StepPart::data);
    window_.queue_depths += static_cast<double>(loader_->queue_depth());
    window_.batches += 1;
    const Batch batch = upload_.next(*loader_);
    work_.enter(StepPart::compute);
    if (micro == 0) device_state_.begin(rank_.stream, step_input(batch));
    device_state_.begin_batch(rank_.stream, micro);
    work_.enqueue(enqueued_ + 1, micro, upload_.place(rank_.stream, batch));
  }
  device_state_.end(rank_.stream);
  trace_.end_step();
  ++enqueued_;
}

void Trainer::write_trace() {
  pause_timer();
  const int64_t steps = trace_.write();
  if (steps == 0 || !profile_) return;
  reporter_.step_table(make_step_table(profile_->times(), steps, rank_.model.training(), rank_.backend()));
}

// `batch` is the first micro-batch of the step; the others follow it in the sample stream.
StepInput Trainer::step_input(const Batch& batch) {
  StepInput input;
  const uint64_t key = random_key(config_.train.seed, fnv1a64("dropout"));
  for (int64_t micro = 0; micro < config_.train.accumulate; ++micro) {
    const uint64_t first = batch.first_position + micro * batch.size;
    input.dropout.push_back({static_cast<int32_t>(key), static_cast<int32_t>(key >> 32), static_cast<int32_t>(first),
                             static_cast<int32_t>(first >> 32)});
  }
  StepControl& control = input.control;
  control.learning_rate = schedule_.rate(schedule_step(enqueued_position()));
  for (int64_t i = 0; i < batch.size; ++i) control.samples += batch.weights[i];
  control.stop = must_stop() ? 1 : 0;
  control.save = checkpointer_.due_by_clock() ? 1 : 0;
  return input;
}

// Returns whether this rank wants the run to stop: on request, and on rank 0 also when the time of the run or of the
// job is over. Once it is over it stays so, although the job may seem to have more time after the last save.
bool Trainer::must_stop() {
  if (rank_.group.is_root() && time_limit_.empty()) {
    const double limit = config_.train.max_seconds;
    if (limit > 0 && monotonic_seconds() - started_ >= limit) {
      time_limit_ = fmt::format("train.max_seconds = {:g}", limit);
    } else if (checkpointer_.must_stop(seconds_to_stop())) {
      time_limit_ = "the end of the job is near";
    }
  }
  return rank_.stop_requested.load() || !time_limit_.empty();
}

// Returns how long the steps may take that run before a stop if the step that starts does not ask for it, but the next
// one does: those in flight, these two, and those that start before the outcome of the second is known.
double Trainer::seconds_to_stop() const { return (2 + 2 * steps_ahead(rank_.backend())) * longest_step_; }

// Handles the outcomes of the steps that are due by now, or of all steps in flight.
void Trainer::retire(bool all) {
  if (device_state_.in_flight() > 0) timer_.enter(StepPart::compute);  // also after a pause
  while (const auto outcome = device_state_.next_outcome(all)) {
    rank_.communicator.check();  // throws if an all-reduce behind this outcome failed
    retire(*outcome);
  }
}

void Trainer::retire(const StepOutcome& outcome) {
  progress_.loss_scale = {outcome.loss_scale, static_cast<int64_t>(outcome.steady_steps)};
  if (outcome.applied > 0) {
    non_finite_.applied();
  } else if (outcome.overflowed > 0) {
    reporter_.event(progress_.step + 1, "skipped",
                    fmt::format("gradients overflow: the loss scale is now {}", outcome.loss_scale));
    const std::string warning = non_finite_.overflowed(outcome.loss_scale);
    if (!warning.empty() && rank_.group.is_root()) log_warning("step {}: {}", progress_.step + 1, warning);
  } else {
    skip_non_finite(outcome);
  }
  ++progress_.step;
  progress_.position += global_batch_;
  progress_.updates = static_cast<int64_t>(outcome.updates);
  timer_.finish_step(static_cast<int64_t>(outcome.samples));
  const bool first = timer_.totals().steps == 1;  // which prepares more than others do
  if (!first) longest_step_ = std::max<double>(longest_step_, timer_.step_seconds().back());
  if (outcome.not_finite == 0) {
    window_.loss += outcome.loss;
    window_.samples += outcome.samples;
  }
  stop_ |= outcome.stop > 0;
  save_ |= outcome.save > 0;
  report_if_due();
  watch_speed_if_due();
}

void Trainer::skip_non_finite(const StepOutcome& outcome) {
  if (roll_back_) return;  // this step was enqueued before the rollback was decided
  roll_back_ = non_finite_.skip(progress_.step + 1, outcome);
  if (rank_.group.is_root()) log_warning("{}: the step is skipped", non_finite_.where());
  reporter_.event(progress_.step + 1, "skipped", non_finite_.where());
}

// Collective, between steps. The other ranks wait longer than rank 0, so that rank 0 reports a save that takes too
// long.
void Trainer::wait_for_save_in_flight() {
  rank_.watchdog.progress(RunPhase::save, progress_.step);
  const double limit = rank_.group.limit();
  if (!checkpointer_.wait_for_save_in_flight(limit)) {
    fail(ExitCode::checkpoint, "step {}: a checkpoint is still being written after {} s; {} may be out of reach",
         progress_.step, limit, config_.checkpoint.directory);
  }
  checkpointer_.poll();
  rank_.group.barrier({"the save in flight", limit + kRootSpeaksSeconds});
}

// Replaces diverged weights by those of the newest checkpoint. The samples after it are repeated.
void Trainer::roll_back() {
  retire(true);
  timer_.pause();
  const int64_t from = progress_.step;
  wait_for_save_in_flight();  // it may become the checkpoint to return to
  rank_.watchdog.progress(RunPhase::start, from);
  const StartState state = [&] {
    const ScopedFileUse use(rank_.group.is_root() ? &rank_.watchdog.board() : nullptr, config_.checkpoint.directory);
    return return_to_checkpoint(rank_);
  }();
  checkpointer_.returned_to(state.progress);
  continue_from(state.progress);
  const std::string text = non_finite_.went_back(from, state.resumed_from);
  if (rank_.group.is_root()) log_warning("{}", text);
  reporter_.back_to(progress_.step, text);
  timer_.restart();
}

// Stops the timer until the next step, unless a device computes meanwhile.
void Trainer::pause_timer() {
  if (device_state_.in_flight() == 0) timer_.pause();
}

void Trainer::report_if_due() {
  if (!reporter_.due(progress_.step) && !finished()) return;
  pause_timer();
  const StepTimer interval = timer_;
  timer_.restart();  // now, because a device computes while the host reports
  reporter_.interval({.step = progress_.step,
                      .total_steps = total_steps_,
                      .epoch = epoch(),
                      .loss = window_.loss / window_.samples,
                      .learning_rate = schedule_.rate(schedule_step(progress_.position - global_batch_)),
                      .queue_depth = window_.queue_depths / std::max(1.0, window_.batches)},
                     interval);
  window_ = {};
  work_.warn_if_not_captured();
}

void Trainer::watch_speed_if_due() {
  if (!reporter_.watch_due(timer_.totals().steps)) return;
  pause_timer();
  reporter_.watch_speed(progress_.step, timer_.totals(), rank_.communicator.statistics().straggler_wait_seconds);
}

// Returns whether an action that is due every `steps` steps (0: never) needs the state after the last enqueued step.
bool Trainer::due(int64_t steps) const { return steps > 0 && enqueued_ % steps == 0; }

bool Trainer::evaluation_due() const {
  return evaluation_due_at(config_.eval, {data_.size(), global_batch_},
                           {.step = enqueued_, .position = enqueued_position()});
}

// Returns whether an action needs that state, so that the steps in flight must finish first.
bool Trainer::boundary_is_due() const {
  return due(config_.train.audit_every) || due(config_.log.histogram_steps) || due(config_.checkpoint.every_steps) ||
         evaluation_due();
}

void Trainer::save_if_due() {
  checkpointer_.poll();
  // With keep_best, the evaluation at the end of the run comes before the last save.
  if (stop_ || (config_.checkpoint.keep_best && finished())) return;
  if (!save_ && !due(config_.checkpoint.every_steps)) return;
  retire(true);
  save_ = false;
  checkpointer_.save(progress_);
}

void Trainer::evaluate_if_due() {
  if (!stop_ && evaluation_due() && evaluated_at_ != progress_.step) evaluate();
}

void Trainer::evaluate() {
  timer_.pause();
  evaluated_at_ = progress_.step;
  if (!evaluator_) return;
  // If the last state is the best, its save must not be skipped. Waiting here delays no step.
  if (config_.checkpoint.keep_best && finished()) wait_for_save_in_flight();
  std::vector<Weights> weights = {Weights::raw};
  if (config_.ema.decay > 0) weights.push_back(Weights::average);
  const auto results = evaluator_->run(weights, [&] { return must_stop(); });
  if (results.empty()) {
    if (rank_.group.is_root()) log_info("the evaluation at step {} is left, to stop", progress_.step);
    stop_ = true;
    return;
  }
  reporter_.evaluation(progress_.step, epoch(), results);
  evaluator_->explain_large_loss(results.front());
  if (config_.eval.patience_epochs > 0) end_if_no_better(results.back().score());
  if (config_.checkpoint.keep_best) checkpointer_.save_if_best(progress_, results.back().score());
}

// Early stopping. No step is in flight at an evaluation, so this one can become the last. Evaluations come at the end
// of a step, up to a global batch after they are due.
void Trainer::end_if_no_better(double score) {
  BestEvaluation& best = progress_.best_evaluation;
  if (score > best.score) best = {.score = score, .position = progress_.position};
  const auto samples = static_cast<double>(data_.size());
  const int64_t most = progress_.position + global_batch_ - best.position;
  const bool is_best = best.position == progress_.position;
  if (finished() || is_best || static_cast<double>(most) <= config_.eval.patience_epochs * samples) return;
  total_steps_ = progress_.step;
  if (window_.batches > 0) report_if_due();
  const std::string text =
      fmt::format("early stopping: the best evaluation, {:.5f}, is that of epoch {:.2f} (eval.patience_epochs = {:g})",
                  best.score, static_cast<double>(best.position) / samples, config_.eval.patience_epochs);
  if (rank_.group.is_root()) log_info("{}", text);
  reporter_.event(progress_.step, "early stopping", text);
}

void Trainer::report_weights() {
  timer_.pause();
  if (!reporter_.writes_events()) return;
  const HostState state(rank_.model);
  state.download();
  const ParameterTable& table = rank_.model.parameters();
  for (ParameterId id = 0; id < table.size(); ++id) {
    if (table[id].trained()) reporter_.histogram(progress_.step, table[id].name, state.parameter(id));
  }
}

void Trainer::report_bad_records() {
  if (config_.data.bad_records != BadRecordRule::skip) return;
  reporter_.bad_records(progress_.step, {"data.train", data_.left_out()}, loader_->bad_records());
  if (!evaluator_) return;
  reporter_.bad_records(progress_.step, {"data.validation", evaluator_->left_out()}, evaluator_->bad_records());
}

std::vector<double> Trainer::bucket_ready_seconds() const {
  std::vector<double> seconds;
  if (!rank_.backend().host_addressable()) return seconds;
  for (const double time : work_.ready_times()) seconds.push_back(time - step_began_);
  return seconds;
}

double Trainer::epoch() const { return static_cast<double>(progress_.position) / static_cast<double>(data_.size()); }

}  // namespace lockstep
