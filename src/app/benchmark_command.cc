#include <algorithm>
#include <functional>
#include <span>

#include "app/cli/benchmark_lines.h"
#include "app/commands.h"
#include "app/devices.h"
#include "app/fatal.h"
#include "app/job.h"
#include "app/preflight.h"
#include "app/stop_signals.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/transport/mpi_communicator.h"
#include "lockstep/io/file.h"
#include "lockstep/train/decay_loss.h"
#include "lockstep/train/host_state.h"
#include "lockstep/train/initialize.h"
#include "lockstep/train/loading.h"
#include "lockstep/train/start_state.h"
#include "lockstep/train/step_work.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

constexpr double kNanoseconds = 1e9;

void print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) log_info("{}", line);
}

struct BenchmarkRun {
  const BenchmarkOptions& options;
  const Config& config;
  ProcessGroup& group;
  Watchdog& watchdog;
  const ModelSetup& setup;
  const DataSource& data;
  int loader_threads;
  BenchmarkLines& lines;

  BatchUse batch_use() const {
    const bool stays = options.batch_on_device && !setup.backend->host_addressable();
    return stays ? BatchUse::every_step : BatchUse::one_step;
  }
  // For ranks that train together: those of the job, or a single one.
  RankContext context(const Config& its_config, ProcessGroup& its_group, Communicator& communicator) const {
    return {.config = its_config,
            .group = its_group,
            .watchdog = watchdog,
            .stop_requested = stop_requested(),
            .communicator = communicator,
            .stream = *setup.stream,
            .model = *setup.model,
            .loader_threads = loader_threads,
            .batch_use = batch_use()};
  }
};

// Prints the line before the first step. Nothing else is printed between it and the first timed step.
void announce_steps(const BenchmarkRun& run) {
  if (run.options.warm_up > 0) {
    log_info("Running warm up");
  } else {
    print(run.lines.start());
  }
}

// Means over the steps of one rank: the time of a step, and the times at which the buckets of gradients are complete.
class StepMeans {
 public:
  void add(const Trainer& trainer, double seconds) {
    const std::vector<double> ready = trainer.bucket_ready_seconds();
    ready_.resize(ready.size());
    for (size_t i = 0; i < ready.size(); ++i) ready_[i] += ready[i];
    seconds_ += seconds;
    ++steps_;
    buckets_.assign(trainer.buckets().begin(), trainer.buckets().end());
  }
  double seconds() const { return seconds_ / steps_; }
  // `gradients` is the number of elements of the arena before its statistics.
  std::vector<BucketTime> buckets(int64_t gradients) const {
    std::vector<BucketTime> times;
    for (size_t i = 0; i < ready_.size(); ++i) {
      const int64_t own = std::clamp(gradients - buckets_[i].offset, int64_t{0}, buckets_[i].count);
      times.push_back({.gradients = own, .others = buckets_[i].count - own, .ready_seconds = ready_[i] / steps_});
    }
    return times;
  }

 private:
  double seconds_ = 0, steps_ = 0;
  std::vector<double> ready_;  // sums, by bucket
  std::vector<Bucket> buckets_;
};

using OnStep = std::function<void(const Trainer& trainer, const ProgressRow& row)>;

// Trains from `progress` to the last step of the configuration and updates `progress`. Rank 0 calls `on_step` after
// each step.
RunEnd run_steps(const RankContext& rank, const DataSource& data, Progress& progress, const OnStep& on_step) {
  const Trainer* running = nullptr;
  Reporter reporter(rank.group,
                    {.every_steps = 1, .on_interval = [&](const ProgressRow& row) { on_step(*running, row); }});
  Checkpointer none(rank.config, rank.model, {.root = false});
  Trainer trainer(rank, data, nullptr, none, reporter, progress);
  running = &trainer;
  const RunEnd end = run_or_abort([&] { return trainer.run(); });
  progress = trainer.progress();
  return end;
}

[[noreturn]] void fail_stopped(int64_t step) {
  throw AgreedError(ExitCode::stopped,
                    fmt::format("stopped on request at step {}; nothing was measured to the end", step));
}

// Returns the number of steps of each rank alone that are not timed. On a device, they include the captured step.
int64_t warm_up_alone(const Backend& backend) { return backend.host_addressable() ? 1 : kStepsBeforeCapture + 1; }

// Lets every rank train alone, all at the same time. The learning rate is 0, so that the weights stay equal.
void train_alone(const BenchmarkRun& run, const Progress& from) {
  ProcessGroup& group = run.group;
  const Timeout wait{"the steps of each rank alone"};
  Config config = run.config;
  const int64_t warm_up_ends = from.step + warm_up_alone(*run.setup.backend);
  config.train.steps = warm_up_ends + run.options.alone;
  config.train.epochs = 0;
  config.optimizer.lr = 0;
  ProcessGroup self = ProcessGroup::self(group);
  MpiCommunicator self_alone(self);
  StepMeans means;
  Progress progress = from;
  group.barrier(wait);
  const RunEnd end = run_steps(run.context(config, self, self_alone), run.data, progress,
                               [&](const Trainer& trainer, const ProgressRow& row) {
                                 if (row.step > warm_up_ends) means.add(trainer, row.seconds_per_step);
                               });
  int64_t stopped = end == RunEnd::stopped;
  group.all_reduce_max(std::span(&stopped, 1), wait);
  if (stopped) fail_stopped(progress.step);
  const auto mine = static_cast<int64_t>(means.seconds() * kNanoseconds);
  AloneSteps alone{.buckets = means.buckets(run.setup.model->state().trained_elements)};
  for (const int64_t ns : group.all_gather(std::span(&mine, 1), wait)) {
    alone.rank_seconds.push_back(static_cast<double>(ns) / kNanoseconds);
  }
  run.lines.set_alone(std::move(alone));
}

void train(const BenchmarkRun& run) {
  const auto& [backend, stream, model, batches, shared_devices, plans] = run.setup;
  ProcessGroup& group = run.group;
  const BenchmarkOptions& options = run.options;
  const std::unique_ptr<Communicator> communicator = make_communicator(run.config, group, *backend, shared_devices);
  require_capturable(run.config, *backend, *communicator);
  share_gradients(*model, *communicator);
  const RankContext rank = run.context(run.config, group, *communicator);
  Progress progress = run_or_abort([&] { return start_afresh(rank); }).progress;
  announce_steps(run);
  DecayLoss decay(run.config, *model, *stream);  // on a device, that of the line before, equal to three decimals
  StepMeans means;
  const auto on_step = [&](const Trainer& trainer, const ProgressRow& row) {
    const double loss = row.loss + (run.lines.shown(row.step) ? decay.value() : 0);
    if (row.step > options.warm_up) means.add(trainer, row.seconds_per_step);
    print(run.lines.step(row.step, row.seconds_per_step, loss));
  };
  if (run_steps(rank, run.data, progress, on_step) == RunEnd::stopped) {
    fail_stopped(progress.step);
  }
  if (group.size() == 1) {
    run.lines.set_alone({{means.seconds()}, means.buckets(model->state().trained_elements)});
  } else if (options.alone > 0 && !run.config.train.sync_batch_norm) {  // synchronized batch norm needs the other ranks
    train_alone(run, progress);
  }
}

// Runs forward passes on every rank without communication.
void run_forward(const BenchmarkRun& run, int64_t steps) {
  const auto& [backend, stream, model, batches, shared_devices, plans] = run.setup;
  const HostState host(*model);
  initialize_parameters(run.config, *model, host);
  host.upload();
  announce_steps(run);
  Loader loader(run.data, loader_options(run.config, {.training = false,
                                                      .group = run.group,
                                                      .batch_size = model->batches().evaluation,
                                                      .workers = run.loader_threads,
                                                      .model = model.get()}));
  BatchUpload upload(*backend, loader.options(), run.batch_use());
  Arenas arenas = model->evaluation_arenas(Weights::raw);
  for (int64_t step = 1; step <= steps; ++step) {
    run.watchdog.progress(RunPhase::evaluate, step);
    const double began = monotonic_seconds();
    const Batch batch = upload.next(loader);
    arenas.external = upload.place(*stream, batch);
    model->evaluation().forward(*stream, arenas);
    stream->wait();
    if (run.group.is_root()) print(run.lines.step(step, monotonic_seconds() - began, 0));
  }
}

}  // namespace

int benchmark_command(const CommandLine& command, Config config, ProcessGroup& group, Watchdog& watchdog) {
  const BenchmarkOptions& options = command.benchmark;
  config.checkpoint.directory.clear();  // a benchmark must not touch the directory of a run
  config.log.trace_steps = 0;
  const Timeout wait{"the benchmark"};
  const Comparison programs = compare_programs(config, group);
  log_info("{}", program_line(programs.rows));
  for (const Finding& finding : programs.findings) act_on(finding, group);
  const ThreadBudget threads = plan_threads(config, group);
  watchdog.progress(RunPhase::scan, 0);
  const std::unique_ptr<DataSource> data = open_data(config, Split::training, group);
  watchdog.progress(RunPhase::compile, 0);
  const Purpose purpose = options.forward_only ? Purpose::evaluate : Purpose::train;
  const PlanSource plans = options.forward_only ? PlanSource() : new_plans(config);
  const ModelSetup setup = set_up_model(config, {purpose, plans}, threads, group);
  const ModelBatches& batches = setup.model->batches();
  BenchmarkLines lines(options, {.ranks = group.size(),
                                 .batch = options.forward_only ? batches.evaluation : batches.training,
                                 .samples = data->size(),
                                 .gpu = !setup.backend->host_addressable(),
                                 .imagenet = config.model.classes > 10});
  print(lines.banner());
  const BenchmarkRun run{options, config, group, watchdog, setup, *data, threads.workers, lines};
  if (options.forward_only) {
    run_or_abort([&] { run_forward(run, options.warm_up + options.batches); });
  } else {
    train(run);
  }
  on_root(group, wait, [&] {
    print(lines.total());
    print(lines.efficiency());
    if (!options.log_directory.empty()) {
      make_directories(options.log_directory, ExitCode::config);
      write_text_atomically(options.log_directory + "/benchmark.json", lines.json(), ExitCode::config);
    }
    return std::string();
  });
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
