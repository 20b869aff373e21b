#include "app/evaluation_setup.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "app/devices.h"
#include "app/fatal.h"
#include "app/stop_signals.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/config/load.h"
#include "lockstep/train/class_names.h"

namespace lockstep {

std::unique_ptr<DataSource> open_evaluation_data(const Config& config, ProcessGroup& group, Watchdog& watchdog) {
  if (!has_validation(config) && config.data.format != "synthetic") {
    throw AgreedError(ExitCode::config,
                      "data.validation names no data to evaluate on, and data.validation_fraction is 0");
  }
  watchdog.progress(RunPhase::scan, 0);
  return open_data(config, Split::validation, group);
}

EvaluationSetup set_up_evaluation(const CommandLine& command, const Config& config, const ThreadBudget& threads,
                                  DataSource& data, ProcessGroup& group, Watchdog& watchdog) {
  watchdog.progress(RunPhase::compile, 0);
  EvaluationSetup ready{
      .setup =
          set_up_model(config, {Purpose::evaluate, plans_of_checkpoint(config, command.checkpoint)}, threads, group)};
  const ModelSetup& setup = ready.setup;
  ready.communicator = make_communicator(config, group, *setup.backend, setup.shared_devices);
  const RankContext rank{.config = config,
                         .group = group,
                         .watchdog = watchdog,
                         .stop_requested = stop_requested(),
                         .communicator = *ready.communicator,
                         .stream = *setup.stream,
                         .model = *setup.model,
                         .loader_threads = threads.workers};
  run_or_abort([&] {
    const std::vector<std::string> outputs = name_outputs(data.class_names(), config.data.label_offset);
    ready.loaded = load_for_evaluation(rank, outputs, command.checkpoint);
    on_every_rank(group, {"the start"}, [&] {
      const std::vector<std::string>& classes = ready.loaded.classes;
      if (config.data.label_offset == 0 && are_part_of(outputs, classes)) data.follow_classes(classes);
      require_same_classes({"the checkpoint", classes},
                           {"the data", name_outputs(data.class_names(), config.data.label_offset)});
      ready.evaluator = std::make_unique<Evaluator>(rank, data);
    });
  });
  if (command.average && !ready.loaded.has_average) {
    throw AgreedError(ExitCode::config, "the checkpoint has no moving averages (ema.decay was 0): leave --ema out");
  }
  return ready;
}

std::span<const float> logits_of(int64_t i, const Batch& batch, std::span<const float> logits, const DataSource& data) {
  const size_t classes = logits.size() / static_cast<size_t>(batch.size);
  const auto of_sample = logits.subspan(static_cast<size_t>(i) * classes, classes);
  if (!std::ranges::all_of(of_sample, [](float logit) { return std::isfinite(logit); })) {
    fail(ExitCode::numerics, "{}: the outputs of the model are not finite: take an earlier checkpoint",
         data.where(batch.indices[i]));
  }
  return of_sample;
}

}  // namespace lockstep
