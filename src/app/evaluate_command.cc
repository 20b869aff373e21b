#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/cli/class_report.h"
#include "app/commands.h"
#include "app/evaluation_setup.h"
#include "app/fatal.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/gather_values.h"
#include "lockstep/io/file.h"
#include "lockstep/observe/reporter.h"

namespace lockstep {
namespace {

using Outcomes = std::map<std::pair<int64_t, int64_t>, int64_t>;  // samples by label and predicted class

void count_outcomes(const Batch& batch, std::span<const float> logits, const DataSource& data, Outcomes& to) {
  for (int64_t i = 0; i < batch.size; ++i) {
    if (batch.weights[i] == 0) continue;
    const std::span<const float> of_sample = logits_of(i, batch, logits, data);
    const auto best = std::ranges::max_element(of_sample) - of_sample.begin();  // the first of equal ones, as in top-1
    ++to[{batch.labels[i], best}];
  }
}

// Collective. Rank 0 prints and writes the requested reports on the samples of all ranks.
void report_classes(const CommandLine& command, ClassReport& report, const Outcomes& mine, ProcessGroup& group) {
  const Timeout wait{"the evaluation by class"};
  struct Count {
    int64_t label, predicted, samples;
  };
  std::vector<Count> counts;
  for (const auto& [outcome, samples] : mine) counts.push_back({outcome.first, outcome.second, samples});
  const std::vector<Count> all = gather_values<Count>(group, counts, wait);
  on_root(group, wait, [&] {
    for (const auto& [label, predicted, samples] : all) report.add(label, predicted, samples);
    if (command.per_class) log_info("{}", report.table());
    if (!command.confusion.empty()) {
      write_text_atomically(command.confusion, report.csv(), ExitCode::checkpoint);
      log_info("confusion matrix: {}", command.confusion);
    }
    return std::string();
  });
}

}  // namespace

int evaluate_command(const CommandLine& command, const Config& config, ProcessGroup& group, Watchdog& watchdog) {
  const ThreadBudget threads = plan_threads(config, group);
  const std::unique_ptr<DataSource> data = open_evaluation_data(config, group, watchdog);
  const EvaluationSetup ready = set_up_evaluation(command, config, threads, *data, group, watchdog);
  const LoadedWeights& loaded = ready.loaded;
  Evaluator& evaluator = *ready.evaluator;

  std::vector<Weights> weights = {Weights::raw};
  if (loaded.has_average) weights.push_back(Weights::average);
  const bool by_class = command.per_class || !command.confusion.empty();
  Outcomes outcomes;
  const auto collect = [&](Weights of, const Batch& batch, std::span<const float> logits) {
    if (by_class && (of == Weights::average) == command.average) count_outcomes(batch, logits, *data, outcomes);
  };
  Reporter reporter(group, {});
  reporter.evaluation(loaded.step, loaded.epoch, run_or_abort([&] { return evaluator.run(weights, {}, collect); }));
  if (config.data.bad_records == BadRecordRule::skip) {
    reporter.bad_records(loaded.step, {"data.validation", evaluator.left_out()}, evaluator.bad_records());
  }
  if (by_class) {
    ClassReport report(config.model.classes, loaded.classes);
    run_or_abort([&] { report_classes(command, report, outcomes, group); });
  }
  run_or_abort([&] { group.barrier({"the end"}); });
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
