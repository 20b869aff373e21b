#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "app/cli/prediction_writer.h"
#include "app/cli/terminal.h"
#include "app/commands.h"
#include "app/evaluation_setup.h"
#include "app/fatal.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/gather_values.h"
#include "lockstep/config/load.h"
#include "lockstep/config/model_info.h"

namespace lockstep {
namespace {

// The batch size is the same for any number of ranks, because a sample's last digits may depend on it.
constexpr int64_t kLargestBatch = 32;

// Appends the `top` most probable classes of a sample; equal ones are in the order of their numbers.
void append_best(std::span<const float> logits, int64_t top, Prediction sample, std::vector<Prediction>& to) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::partial_sort(order, order.begin() + top, [&](int64_t a, int64_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - logits[order[0]]);
  for (int64_t k = 0; k < top; ++k) {
    sample.output = order[k];
    sample.probability = std::exp(double{logits[order[k]]} - logits[order[0]]) / sum;
    to.push_back(sample);
  }
}

// Returns the best classes of this rank's samples in one batch.
std::vector<Prediction> best_of(const Batch& batch, std::span<const float> logits, int64_t top,
                                const DataSource& data) {
  std::vector<Prediction> best;
  for (int64_t i = 0; i < batch.size; ++i) {
    if (batch.weights[i] == 0) continue;
    const std::span<const float> of_sample = logits_of(i, batch, logits, data);
    append_best(of_sample, std::min(top, std::ssize(of_sample)), {.sample = batch.indices[i], .label = batch.labels[i]},
                best);
  }
  return best;
}

}  // namespace

int predict_command(const CommandLine& command, Config config, ProcessGroup& group, Watchdog& watchdog) {
  const PredictChoices& choices = command.predict;
  const bool images = !choices.images.empty();
  if (images && model_info(config.model.name).sparse) {
    throw AgreedError(
        ExitCode::config,
        fmt::format("the checkpoint's model is {}, which takes no images: use --data FILES", config.model.name));
  }
  const ThreadBudget threads = plan_threads(config, group);
  const std::unique_ptr<DataSource> data =
      images ? open_given_images(choices.images, group) : open_evaluation_data(config, group, watchdog);
  if (images) config.data.bad_records = BadRecordRule::skip;  // the other images are still predicted
  config.eval.batch_size = std::min({kLargestBatch, evaluation_batch(config, 1), data->size()});
  const EvaluationSetup ready = set_up_evaluation(command, config, threads, *data, group, watchdog);

  PredictionWriter writer(take_standard_output(), choices.format, ready.loaded.classes, !images);
  const Weights weights = command.average ? Weights::average : Weights::raw;
  const Timeout wait{"the predictions"};
  run_or_abort([&] {
    ready.evaluator->run({&weights, 1}, {}, [&](Weights, const Batch& batch, std::span<const float> logits) {
      const std::vector<Prediction> mine = best_of(batch, logits, choices.top, *data);
      for (const Prediction& prediction : gather_values<Prediction>(group, mine, wait)) {
        if (group.is_root()) writer.add(data->where(prediction.sample), prediction);
      }
    });
    on_root(group, wait, [&] {
      writer.finish();
      return std::string();
    });
  });
  auto bad = static_cast<int64_t>(ready.evaluator->bad_records().size());
  run_or_abort([&] { group.all_reduce_sum(std::span(&bad, 1), wait); });
  if (bad == 0) return static_cast<int>(ExitCode::ok);
  const std::string text = fmt::format("{} of {} could not be read", bad, data->description());
  if (images) throw AgreedError(ExitCode::data, text);
  if (group.is_root()) log_warning("{}", text);
  return static_cast<int>(ExitCode::ok);
}

}  // namespace lockstep
