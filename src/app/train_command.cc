#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "app/cli/terminal.h"
#include "app/commands.h"
#include "app/fatal.h"
#include "app/job.h"
#include "app/start.h"
#include "app/stop_signals.h"
#include "app/version.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/config/placeholders.h"
#include "lockstep/train/deadlines.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

constexpr double kLastChanceSeconds = 5;  // for a save in flight when the job fails

void warn_of_lost_restart(const StartState& start) {
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  if (restarts && std::string_view(restarts) != "0" && start.resumed_from.empty()) {
    log_warning("SLURM_RESTART_COUNT = {}: this job has run before, but there is no checkpoint to resume from",
                restarts);
  }
}

void say_nothing_is_left(const Config& config, const StartState& start) {
  log_line(
      start.changes > 0 ? LogLevel::warning : LogLevel::info,
      fmt::format("step {} is the last one of this configuration already: nothing will be trained. For more, raise "
                  "train.epochs or train.steps; for another run, choose another checkpoint.directory than {}",
                  start.progress.step, config.checkpoint.directory));
}

bool shows_bar(ProgressStyle style) {
  if (style != ProgressStyle::automatic) return style == ProgressStyle::bar;
  return moves_cursor(process_environment()) && output_is_terminal(STDOUT_FILENO);
}

ReporterOptions reporter_options(const Config& config, const StartState& start) {
  return {.every_steps = config.log.every_steps,
          .directory = config.checkpoint.directory,
          .jsonl = config.log.jsonl.empty() ? std::string() : config.checkpoint.directory + "/" + config.log.jsonl,
          .events = config.log.tensorboard ? config.checkpoint.directory + "/tensorboard" : std::string(),
          .prometheus = config.log.prometheus_file,
          .resumed_step = start.progress.step,
          .bar_columns = shows_bar(config.log.progress) ? terminal_columns() : 0,
          .bar_colored = takes_colors(process_environment()),
          .slow_disk_seconds = slow_disk_seconds(config)};
}

void announce(const RankContext& rank, const Trainer& trainer, const BatchSizes& batches, int64_t samples) {
  const Config& config = rank.config;
  const CompiledModel& model = rank.model;
  if (const std::string plan = rank.communicator.plan(); !plan.empty()) log_info("{}", plan);
  const std::span<const Bucket> buckets = trainer.buckets();
  if (!model.backend().host_addressable() && model.batches().ranks > 1) {
    log_info("gradients are summed in {}, the last with {:.2f} MB", counted(buckets.size(), "bucket"),
             static_cast<double>(buckets.back().count) * sizeof(float) * 1e-6);
  }
  std::string rate = fmt::format("{}", trainer.base_learning_rate());
  if (config.optimizer.scale_lr) {
    rate += fmt::format(" (optimizer.lr = {} x global batch of {} / 256)", config.optimizer.lr, batches.global);
  }
  const std::string micro =
      config.train.accumulate > 1 ? fmt::format(" x {} batches", config.train.accumulate) : std::string();
  const ParameterTable& table = model.parameters();
  const int64_t frozen = table.frozen_elements();
  log_info("{} parameters{}, {} steps of {} samples ({}{} a rank), {} samples an epoch, learning rate {}",
           table.trained_elements() + frozen, frozen > 0 ? fmt::format(" ({} of them frozen)", frozen) : "",
           trainer.total_steps(), batches.global, batches.per_rank, micro, samples, rate);
}

// Returns why the run stops, from what all ranks know: "SIGUSR1 on rank 1@node7", "train.max_seconds = 60".
std::string stop_reason(ProcessGroup& group, const Trainer& trainer, const Timeout& wait) {
  const int signal = first_stop_signal();
  const std::string mine = signal != 0 ? fmt::format("SIG{}", ::sigabbrev_np(signal)) : std::string();
  const std::vector<std::string> signals = group.all_gather(mine, wait);
  const auto first = std::ranges::find_if(signals, [](const std::string& name) { return !name.empty(); });
  if (first == signals.end()) return trainer.time_limit_reached();
  const auto ranks = std::ranges::count(signals, *first);
  if (ranks == group.size()) return *first + (ranks > 1 ? " on all ranks" : "");
  const std::string where = group.describe(static_cast<int>(first - signals.begin()));
  return fmt::format("{} on {}{}", *first, where, ranks > 1 ? fmt::format(" and {} more", ranks - 1) : "");
}

// No rank returns before rank 0 has published the last checkpoint, because a launcher kills the others when one ends.
int leave(const RankContext& rank, Reporter& reporter, const Trainer& trainer, RunEnd end, bool new_directory) {
  const std::string& directory = rank.config.checkpoint.directory;
  const bool stopped = end == RunEnd::stopped;
  const int64_t step = trainer.progress().step;
  rank.watchdog.progress(RunPhase::save, step);
  const double limit = rank.group.limit();
  const Timeout last{"the last checkpoint", limit + kRootSpeaksSeconds};
  rank.group.barrier(last);
  const std::string reason = stopped ? stop_reason(rank.group, trainer, last) : std::string();
  rank.watchdog.progress(RunPhase::save, step);
  reporter.close(limit);
  const bool requested = reason.starts_with("SIG");
  const std::string option =
      new_directory ? fmt::format("with --checkpoint.directory {} ", without_placeholders(directory)) : "";
  log_info("{} at step {}: the state is saved in {}{}",
           requested ? "stopped on request"
           : stopped ? "stopped"
                     : "finished",
           step, directory,
           stopped ? fmt::format(" ({}; the same command {}continues the run)", reason, option) : std::string());
  rank.group.barrier({"the last rows of metrics and events", limit + kRootSpeaksSeconds});
  return static_cast<int>(stopped ? ExitCode::stopped : ExitCode::ok);
}

}  // namespace

int train_command(const Configured& configured, ProcessGroup& group, Watchdog& watchdog) {
  const Config& config = configured.config;
  RunStart start(config, group, watchdog, RunStart::Use::train, configured.onnx.get());
  start.make_all();
  const RankContext rank = start.context();
  const BatchSizes& batches = start.setup->batches;
  const DataSource& data = *start.data;
  if (group.is_root()) warn_of_lost_restart(*start.state);

  Reporter reporter(group, reporter_options(config, *start.state));
  CheckpointerOptions saving{.root = group.is_root(),
                             .world_size = group.size(),
                             .global_batch = batches.global,
                             .samples_per_epoch = data.size(),
                             .config_text = to_toml(config),
                             .classes = start.state->classes,
                             .training = {{"data_samples", start.identity.samples},
                                          {"data_digest", static_cast<int64_t>(start.identity.digest)}},
                             .resumed_step = start.state->in_run_directory ? start.state->progress.step : -1,
                             .best = start.state->progress.best,
                             .job_end = start.job_end,
                             .stream = &rank.stream,
                             .lock = start.lock ? &*start.lock : nullptr,
                             .on_end = [&](const SaveResult& result) { reporter.checkpoint(result); }};
  std::optional<Checkpointer> checkpointer;
  std::optional<Evaluator> evaluator;
  std::optional<Trainer> trainer;
  const Progress& from = start.state->progress;
  on_every_rank(group, {"the start", group.limit() + kRootFilesSeconds}, [&] {
    const ScopedFileUse use(group.is_root() ? &watchdog.board() : nullptr, config.checkpoint.directory);
    checkpointer.emplace(config, rank.model, std::move(saving));
    if (start.validation) evaluator.emplace(rank, *start.validation);
    trainer.emplace(rank, data, evaluator ? &*evaluator : nullptr, *checkpointer, reporter, from);
  });
  reporter.start(from.step, {program_version(), program_commit(), config});
  if (!start.state->resumed_from.empty()) reporter.event(from.step, "resumed", start.state->resumed_from);
  if (group.is_root() && trainer->total_steps() <= from.step) say_nothing_is_left(config, *start.state);
  announce(rank, *trainer, batches, data.size());

  const auto train = [&] {
    try {
      return trainer->run();
    } catch (const AgreedError&) {  // all ranks return, and rank 0 waits for a save in flight
      watchdog.progress(RunPhase::save, trainer->progress().step);
      throw;
    }
  };
  const RunEnd end = run_or_abort(train, [&] {
    // With the lock released, the next run need not wait until the heartbeat of this one has stopped.
    if (checkpointer->wait_for_save_in_flight(kLastChanceSeconds)) start.lock.reset();
  });
  return run_or_abort([&] { return leave(rank, reporter, *trainer, end, configured.new_directory); });
}

}  // namespace lockstep
