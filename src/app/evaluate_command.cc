#include <optional>
#include <vector>

#include "app/commands.h"
#include "app/devices.h"
#include "app/fatal.h"
#include "app/job.h"
#include "app/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/config/load.h"
#include "lockstep/observe/reporter.h"
#include "lockstep/train/class_names.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/start_state.h"

namespace lockstep {

int evaluate_command(const CommandLine& command, const Config& config, ProcessGroup& group, Watchdog& watchdog) {
  const ThreadBudget threads = plan_threads(config, group);
  if (!has_validation(config) && config.data.format != "synthetic") {
    throw AgreedError(ExitCode::config,
                      "data.validation names no data to evaluate on, and data.validation_fraction is 0");
  }
  watchdog.progress(RunPhase::scan, 0);
  const std::unique_ptr<DataSource> data = open_data(config, Split::validation, group);
  watchdog.progress(RunPhase::compile, 0);
  const auto [backend, stream, model, batches, shared_devices] =
      set_up_model(config, Purpose::evaluate, threads, group);
  const std::unique_ptr<Communicator> communicator = make_communicator(config, group, *backend, shared_devices);
  const RankContext rank{.config = config,
                         .group = group,
                         .watchdog = watchdog,
                         .stop_requested = stop_requested(),
                         .communicator = *communicator,
                         .stream = *stream,
                         .model = *model,
                         .loader_threads = threads.workers};
  const LoadedWeights loaded = run_or_abort([&] {
    return load_for_evaluation(rank, name_outputs(data->class_names(), config.data.label_offset), command.checkpoint);
  });
  std::optional<Evaluator> evaluator;
  run_or_abort([&] {
    on_every_rank(group, {"the start"}, [&] {
      const bool fewer = are_part_of(name_outputs(data->class_names(), 0), loaded.classes);
      if (config.data.label_offset == 0 && fewer) data->follow_classes(loaded.classes);
      require_same_classes({"the checkpoint", loaded.classes},
                           {"the data", name_outputs(data->class_names(), config.data.label_offset)});
      evaluator.emplace(rank, *data);
    });
    return 0;
  });

  std::vector<Weights> weights = {Weights::raw};
  if (loaded.has_average) weights.push_back(Weights::average);
  Reporter reporter(group, {});
  reporter.evaluation(loaded.step, loaded.epoch, run_or_abort([&] { return evaluator->run(weights); }));
  if (config.data.bad_records == BadRecordRule::skip) {
    reporter.bad_records(loaded.step, {"data.validation", evaluator->left_out()}, evaluator->bad_records());
  }
  run_or_abort([&] { group.barrier({"the end"}); });
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
