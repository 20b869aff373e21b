#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "app/commands.h"
#include "app/devices.h"
#include "app/fatal.h"
#include "app/job.h"
#include "app/preflight.h"
#include "app/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/run_lock.h"
#include "lockstep/dist/agreement.h"
#include "lockstep/dist/launcher.h"
#include "lockstep/train/class_names.h"
#include "lockstep/train/deadlines.h"
#include "lockstep/train/job_end.h"
#include "lockstep/train/start_state.h"
#include "lockstep/train/terminal.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

constexpr double kLastChanceSeconds = 5;  // for a save in flight when the job fails, which must not be late

void warn_of_lost_restart(const StartState& start) {
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  if (restarts && std::string_view(restarts) != "0" && start.resumed_from.empty()) {
    log_warning("SLURM_RESTART_COUNT = {}: this job has run before, but there is no checkpoint to resume from",
                restarts);
  }
}

ReporterOptions reporter_options(const Config& config, const StartState& start) {
  return {.every_steps = config.log.every_steps,
          .jsonl = config.log.jsonl.empty() ? std::string() : config.checkpoint.directory + "/" + config.log.jsonl,
          .events = config.log.tensorboard ? config.checkpoint.directory + "/tensorboard" : std::string(),
          .resumed_step = start.progress.step,
          .bar_columns = config.log.progress == "auto" && output_is_terminal(STDOUT_FILENO) ? terminal_columns() : 0,
          .bar_coloured = takes_colours(process_environment()),
          .wait_seconds = wait_seconds(config, RunPhase::train)};
}

struct RunSize {
  const Program& program;
  BatchSizes batches;
  int64_t samples;
  int ranks;
  bool shared_gradients;
};

void announce(const Config& config, const Trainer& trainer, const RunSize& size) {
  const auto& [program, batches, samples, ranks, shared_gradients] = size;
  if (shared_gradients) log_info("gradients are summed in memory that the {} ranks of this host share", ranks);
  std::string rate = fmt::format("{}", trainer.base_learning_rate());
  if (config.optimizer.scale_lr) {
    rate += fmt::format(" (optimizer.lr = {} x global batch of {} / 256)", config.optimizer.lr, batches.global);
  }
  const std::string micro =
      config.train.accumulate > 1 ? fmt::format(" x {} batches", config.train.accumulate) : std::string();
  log_info("{} parameters, {} steps of {} samples ({}{} a rank), {} samples an epoch, learning rate {}",
           program.parameters().trained_elements(), trainer.total_steps(), batches.global, batches.per_rank, micro,
           samples, rate);
}

// Nobody leaves before rank 0 has published its last checkpoint: a launcher kills the others when one rank ends.
int leave(const CommandParts& parts, const Config& config, RunEnd end, int64_t step) {
  const bool stopped = end == RunEnd::stopped;
  log_info("{} at step {}: the state is saved in {}", stopped ? "stopped on request" : "finished", step,
           config.checkpoint.directory);
  parts.watchdog.progress(RunPhase::save, step);
  parts.group.barrier({"the last checkpoint", wait_seconds(config, RunPhase::save) + kRootSpeaksSeconds});
  return static_cast<int>(stopped ? ExitCode::stopped : ExitCode::ok);
}

}  // namespace

int train_command(const CommandParts& parts) {
  ProcessGroup& group = parts.group;
  Watchdog& watchdog = parts.watchdog;
  const StopSignals stop_signals;
  const Config config = configure(parts);
  const WaitFor wait{"the start", wait_seconds(config, RunPhase::start)};

  // Everything the run is made of, each thing after those it needs; destroyed in reverse.
  std::optional<RunLock> lock;
  JobEnd job_end;
  on_root(group, wait, [&] {
    job_end = JobEnd(process_environment());
    lock.emplace(config.checkpoint.directory);
    return std::string();
  });
  compare_programs(config, group);
  const ThreadBudget threads = plan_threads(config, group);
  watchdog.progress(RunPhase::scan, 0);
  const std::unique_ptr<DataSource> data = open_data(config, Split::training, group);
  const std::unique_ptr<DataSource> validation =
      has_validation(config) ? open_data(config, Split::validation, group) : nullptr;
  const std::vector<std::string> classes = name_outputs(data->class_names(), config.data.label_offset);
  if (validation) {
    const std::vector<std::string> validated = name_outputs(validation->class_names(), config.data.label_offset);
    on_root(group, wait, [&] {
      require_same_classes({"data.train", classes}, {"data.validation", validated});
      return std::string();
    });
  }
  watchdog.progress(RunPhase::compile, 0);
  const auto [backend, stream, program, batches, shared_devices] =
      compile_model(config, Purpose::train, threads, group);
  const std::unique_ptr<Communicator> communicator =
      make_communicator({config, group, *backend, shared_devices, wait_seconds(config, RunPhase::train)});
  const bool shared_gradients = share_gradients(*program, *communicator);
  const StartState start = run_or_end_job([&] {
    return prepare_start({config, group, *communicator, *stream, *program, classes});
  });
  if (group.is_root()) warn_of_lost_restart(start);

  std::optional<Evaluator> evaluator;
  if (validation) {
    evaluator.emplace(EvaluatorParts{*program, *backend, *stream, group, watchdog, *validation},
                      loader_options(config, threads), wait_seconds(config, RunPhase::evaluate));
  }
  Reporter reporter(group, reporter_options(config, start));
  CheckpointerOptions saving{.root = group.is_root(),
                             .world_size = group.size(),
                             .global_batch = batches.global,
                             .samples_per_epoch = data->size(),
                             .config_text = to_toml(config),
                             .classes = start.classes,
                             .resumed_step = start.in_run_folder ? start.progress.step : -1,
                             .job_end = job_end,
                             .stream = stream.get(),
                             .lock = lock ? &*lock : nullptr,
                             .on_end = [&](const SaveResult& result) { reporter.checkpoint(result); }};
  std::optional<Checkpointer> checkpointer;
  on_every_rank(group, wait, [&] { checkpointer.emplace(config, *program, std::move(saving)); });
  if (!start.resumed_from.empty()) reporter.event(start.progress.step, "resumed", start.resumed_from);
  Trainer trainer({config, group, *communicator, *backend, *stream, *program, *data, evaluator ? &*evaluator : nullptr,
                   *checkpointer, reporter, watchdog, stop_signals.requested()},
                  loader_options(config, threads), start.progress);
  announce(config, trainer, {*program, batches, data->size(), group.size(), shared_gradients});

  const RunEnd end = run_or_end_job([&] { return trainer.run(); },
                                    [&] {
                                      // Nobody else need wait for this run's heartbeat to be missed.
                                      if (checkpointer->wait_for_save_in_flight(kLastChanceSeconds)) lock.reset();
                                    });
  reporter.close();
  return run_or_end_job([&] { return leave(parts, config, end, trainer.progress().step); });
}

}  // namespace lockstep
