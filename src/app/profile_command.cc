#include <optional>

#include "app/commands.h"
#include "app/fatal.h"
#include "app/machine_rates.h"
#include "app/start.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/io/file.h"
#include "lockstep/train/model_graphs.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

// The configuration of a run of a few steps that keeps nothing.
Config profiled(Config config, int64_t steps) {
  config.checkpoint.directory.clear();
  config.log.trace_steps = steps;
  config.log.histogram_steps = 0;
  config.train.steps = StepTrace::kWarmUpSteps + steps;
  config.train.epochs = 0;
  config.train.audit_every = 0;
  config.train.max_seconds = 0;
  config.train.not_finite = NonFiniteRule::skip;  // nothing is kept, and there is no checkpoint to go back to
  config.checkpoint.every_steps = 0;
  config.checkpoint.every_seconds = 0;
  config.device.graph = GraphCapture::off;  // events cannot time what is inside of a captured step
  return config;
}

}  // namespace

int profile_command(const CommandLine& command, const Config& given, ProcessGroup& group, Watchdog& watchdog) {
  const ProfileChoices& choices = command.profile;
  const Config config = profiled(given, choices.steps);
  on_root(group, {"the directory of the profile"}, [&] {
    const std::string directory = parent_directory(command.to);
    if (!path_exists(directory)) fail(ExitCode::config, "--to {}: there is no directory {}", command.to, directory);
    return std::string();
  });
  RunStart start(config, group, watchdog, RunStart::Use::profile);
  start.make_all();
  const RankContext rank = start.context();
  const Progress from = run_or_abort([&] { return start_afresh(rank); }).progress;
  std::optional<StepTable> table;
  Reporter reporter(group, {.every_steps = config.train.steps,
                            .on_interval = [](const ProgressRow&) {},
                            .on_step_table = [&](const StepTable& measured) { table = measured; }});
  Checkpointer none(config, rank.model, {.root = false});
  Trainer trainer(rank, *start.data, nullptr, none, reporter, from);
  if (run_or_abort([&] { return trainer.run(); }) == RunEnd::stopped) {
    throw AgreedError(ExitCode::stopped, "stopped on request before the profile was complete");
  }
  on_root(group, {"the profile"}, [&] {
    if (!table) fail(ExitCode::config, "spans are observed by an attached profiler already, which shows more");
    const MachineRates peak = measure_machine_rates(rank.backend(), rank.stream, compute_type(config));
    for (const std::string& line : to_lines(*table, choices.rows, peak)) log_info("{}", line);
    if (!command.to.empty()) write_text_atomically(command.to, to_json(*table, peak), ExitCode::config);
    return std::string();
  });
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
