#include "app/start.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "app/devices.h"
#include "app/fatal.h"
#include "app/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/supervision/launcher.h"
#include "lockstep/data/probe_samples.h"
#include "lockstep/train/class_names.h"
#include "lockstep/train/deadlines.h"
#include "lockstep/train/loading.h"

namespace lockstep {
namespace {

constexpr int64_t kProbedSamples = 8;  // in the first batch of each rank

}  // namespace

RunStart::RunStart(const Config& config, ProcessGroup& group, Watchdog& watchdog, Use use, OnnxModel* onnx)
    : config_(config), group_(group), watchdog_(watchdog), use_(use), onnx_(onnx) {}

std::span<const RunStart::Stage> RunStart::stages() {
  static constexpr std::array kStages = {
      Stage{RunPhase::start, &RunStart::claim_directory, &RunStart::has_directory},
      Stage{RunPhase::start, &RunStart::compare_launch, &RunStart::always},
      Stage{RunPhase::start, &RunStart::compare_programs, &RunStart::always},
      Stage{RunPhase::start, &RunStart::share_cores, &RunStart::always},
      Stage{RunPhase::scan, &RunStart::open_training_data, &RunStart::always},
      Stage{RunPhase::scan, &RunStart::open_validation_data, &RunStart::always},
      Stage{RunPhase::scan, &RunStart::compare_classes, &RunStart::has_both_data},
      Stage{RunPhase::compile, &RunStart::compile, &RunStart::always},
      Stage{RunPhase::compile, &RunStart::connect, &RunStart::has_model},
      Stage{RunPhase::start, &RunStart::load, &RunStart::can_load},
      Stage{RunPhase::scan, &RunStart::try_samples, &RunStart::has_data},
  };
  return kStages;
}

void RunStart::make(const Stage& stage) {
  if (!(this->*stage.can)()) return;
  watchdog_.progress(stage.phase, 0);
  (this->*stage.make)();
}

void RunStart::make_all() {
  for (const Stage& stage : stages()) {
    stop_if_requested();
    make(stage);
  }
  stop_if_requested();
  watchdog_.progress(RunPhase::start, 0);
  if (!has_directory()) return;
  const ScopedFileUse use = using_directory();
  delete_given_up(context(), *state);
  const bool of_another_run = setup->backend->plan_tuning() && !state->in_run_directory;
  if (!setup->plans.empty() || of_another_run) keep_plans(group_, config_.checkpoint.directory, setup->plans);
}

// A stop request on any rank ends the start, because there is nothing to save before the first step.
void RunStart::stop_if_requested() {
  int64_t requested = stop_requested().load() ? 1 : 0;
  group_.all_reduce_max(std::span(&requested, 1), {"the start"});
  if (requested == 0) return;
  throw AgreedError(ExitCode::stopped,
                    "stopped on request before the first step: nothing was trained, and what was saved before stays as "
                    "it is; the same command starts the run");
}

void RunStart::note(Finding finding) {
  if (use_ == Use::check) {
    findings.push_back(std::move(finding));
    return;
  }
  act_on(finding, group_);
}

void RunStart::compare(const std::vector<Fact>& facts) {
  note(compare_ranks(group_, {"the comparison of ranks"}, facts));
}

void RunStart::note(Comparison comparison) {
  std::ranges::move(comparison.rows, std::back_inserter(rows));
  for (Finding& finding : comparison.findings) note(std::move(finding));
}

void RunStart::claim_directory() {
  const ScopedFileUse use = using_directory();
  on_root(group_, {"the start", group_.limit() + kRootFilesSeconds}, [&] {
    job_end = JobEnd(process_environment());
    lock.emplace(config_.checkpoint.directory);
    return std::string();
  });
}

// Compares the number of ranks with what the launcher claims: a step may be smaller than its job, or tasks are missing.
void RunStart::compare_launch() {
  const auto claim = launch_claim(process_environment());
  const int ranks = group_.size();
  const bool differs = claim && claim->processes != ranks;
  const std::string mine =
      differs ? fmt::format("the launcher started {} processes ({})", claim->processes, claim->variable)
              : std::string();
  for (const std::string& text : group_.all_gather(mine, {"the start"})) {
    if (text.empty()) continue;
    note({.blame = ExitCode::config,
          .what = fmt::format("{}, but MPI has {} ranks", text, ranks),
          .advice = "start all of them with one mpirun or one srun --mpi=pmix"});
    return;
  }
}

void RunStart::compare_programs() {
  Comparison comparison = lockstep::compare_programs(config_, group_);
  if (use_ == Use::train) log_info("{}", program_line(comparison.rows));
  note(std::move(comparison));
}

void RunStart::share_cores() {
  threads = count_threads(config_, group_);
  if (use_ == Use::train) announce_threads(threads, group_);
}

void RunStart::open_training_data() {
  auto opened = open_data(config_, Split::training, group_);
  on_every_rank(group_, {"the scan of data.train"}, [&] { identity = identity_of(*opened); });
  compare({identity_fact("training data", identity)});
  data = std::move(opened);
}

void RunStart::open_validation_data() {
  if (!has_validation(config_)) return;
  auto opened = open_data(config_, Split::validation, group_);
  DataIdentity of_validation;
  on_every_rank(group_, {"the scan of data.validation"}, [&] { of_validation = identity_of(*opened); });
  compare({identity_fact("validation data", of_validation)});
  validation = std::move(opened);
}

void RunStart::compare_classes() {
  classes = name_outputs(data->class_names(), config_.data.label_offset);
  if (!validation) return;
  on_every_rank(group_, {"the start"}, [&] {
    if (are_part_of(validation->class_names(), data->class_names())) validation->follow_classes(data->class_names());
  });
  const std::vector<std::string> validated = name_outputs(validation->class_names(), config_.data.label_offset);
  on_root(group_, {"the start"}, [&] {
    require_same_classes({"data.train", classes}, {"data.validation", validated});
    if (const std::string shared = shared_input(*data, *validation); !shared.empty()) {
      log_warning("data.train and data.validation read the same data ({}): the evaluation counts what was trained on",
                  shared);
    }
    return std::string();
  });
}

void RunStart::compile() {
  PlanSource plans = use_ == Use::profile ? new_plans(config_) : plans_of_run(config_);
  if (use_ == Use::check) plans.timed = false;
  setup.emplace(set_up_model(config_, {Purpose::train, plans}, threads.budget, group_));
  compare(model_facts(*setup));
}

void RunStart::connect() {
  communicator = make_communicator(config_, group_, *setup->backend, setup->shared_devices);
  require_capturable(config_, *setup->backend, *communicator);
  share_gradients(*setup->model, *communicator);
}

RankContext RunStart::context() const {
  return {.config = config_,
          .group = group_,
          .watchdog = watchdog_,
          .stop_requested = stop_requested(),
          .communicator = *communicator,
          .stream = *setup->stream,
          .model = *setup->model,
          .loader_threads = threads.budget.workers};
}

ScopedFileUse RunStart::using_directory() const {
  return ScopedFileUse(is_root() ? &watchdog_.board() : nullptr, config_.checkpoint.directory);
}

void RunStart::load() {
  const ScopedFileUse use = using_directory();
  state = run_or_abort([&] { return prepare_start(context(), classes, identity, onnx_); });
  if (onnx_) onnx_->weights.clear();
}

// Prepares some samples of the first batch of each rank, so that bad data are found at the start.
void RunStart::try_samples() {
  const int ranks = group_.size();
  LoaderUse use{
      .group = group_, .workers = threads.budget.workers, .start_position = state ? state->progress.position : 0};
  on_every_rank(group_, {"the first samples"}, [&] {
    use.batch_size = batch_sizes(config_, ranks).per_rank;
    probe_samples(*data, loader_options(config_, use), kProbedSamples);
    if (!validation) return;
    use.training = false;
    use.batch_size = evaluation_batch(config_, ranks);
    probe_samples(*validation, loader_options(config_, use), kProbedSamples);
  });
}

}  // namespace lockstep
