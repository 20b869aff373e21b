#include <vector>

#include "app/commands.h"
#include "app/evaluation_setup.h"
#include "app/fatal.h"
#include "lockstep/base/error.h"
#include "lockstep/observe/reporter.h"

namespace lockstep {

int evaluate_command(const CommandLine& command, const Config& config, ProcessGroup& group, Watchdog& watchdog) {
  const ThreadBudget threads = plan_threads(config, group);
  const std::unique_ptr<DataSource> data = open_evaluation_data(config, group, watchdog);
  const EvaluationSetup ready = set_up_evaluation(command.checkpoint, config, threads, *data, group, watchdog);
  const LoadedWeights& loaded = ready.loaded;
  Evaluator& evaluator = *ready.evaluator;

  std::vector<Weights> weights = {Weights::raw};
  if (loaded.has_average) weights.push_back(Weights::average);
  Reporter reporter(group, {});
  reporter.evaluation(loaded.step, loaded.epoch, run_or_abort([&] { return evaluator.run(weights); }));
  if (config.data.bad_records == BadRecordRule::skip) {
    reporter.bad_records(loaded.step, {"data.validation", evaluator.left_out()}, evaluator.bad_records());
  }
  run_or_abort([&] { group.barrier({"the end"}); });
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
