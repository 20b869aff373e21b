#include "lockstep/train/evaluator.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace.h"
#include "lockstep/comm/group/gather_values.h"
#include "lockstep/train/loading.h"
#include "train/auc.h"

namespace lockstep {
namespace {

constexpr int64_t kMostBatchesUnasked = 1000;

LoaderOptions evaluation_options(const RankContext& rank) {
  return loader_options(rank.config, {.training = false,
                                      .group = rank.group,
                                      .batch_size = rank.model.batches().evaluation,
                                      .workers = rank.loader_threads,
                                      .model = &rank.model});
}

// The sums over one pass on this rank.
struct Sums {
  double loss = 0;
  std::array<int64_t, 3> counts{};  // examples, top1, top5
  Scores scores;                    // with two classes: logit of class 1 minus logit of class 0
};

double cross_entropy(std::span<const float> logits, int32_t label) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return std::log(sum) + largest - logits[label];
}

bool has_two_classes(const CompiledModel& model) {
  const Graph& graph = model.evaluation().graph();
  return graph.value(graph.losses.front().logits).desc.shape[1] == 2;
}

// Returns the logits of the batch.
std::vector<float> add_batch(const RankContext& rank, const Batch& batch, const Arenas& arenas, Sums& sums) {
  const Executable& e = rank.model.evaluation();
  e.forward(rank.stream, arenas);
  const LossHead& head = e.graph().losses.front();
  const size_t classes = e.graph().value(head.logits).desc.shape[1];
  std::vector<float> logits(batch.size * classes);
  std::array<int32_t, 2> correct{};
  rank.backend().copy(rank.stream, logits.data(), e.address(head.logits, arenas), logits.size() * sizeof(float));
  rank.backend().copy(rank.stream, correct.data(), e.address(head.correct, arenas), sizeof correct);
  rank.stream.wait();
  for (int64_t i = 0; i < batch.size; ++i) {
    if (batch.weights[i] == 0) continue;
    ++sums.counts[0];
    const auto of_sample = std::span<const float>(logits).subspan(i * classes, classes);
    sums.loss += cross_entropy(of_sample, batch.labels[i]);
    if (classes != 2) continue;
    (batch.labels[i] == 1 ? sums.scores.positive : sums.scores.negative).push_back(of_sample[1] - of_sample[0]);
  }
  sums.counts[1] += correct[0];
  sums.counts[2] += correct[1];
  return logits;
}

}  // namespace

Evaluator::Evaluator(const RankContext& rank, const DataSource& data)
    : rank_(rank),
      data_(data),
      loader_(data, evaluation_options(rank)),
      upload_(rank.backend(), loader_.options()),
      steps_(evaluation_steps(data.size(), rank.group.size(), rank.model.batches().evaluation)) {}

// Collective about once per second. The slowest rank's time per batch decides how many batches to run before the next
// agreement, so all ranks agree before the same batches.
bool Evaluator::all_go_on(int64_t step, const std::function<bool()>& stop) {
  constexpr double kQuestionSeconds = 1;
  if (!stop || step < next_question_) return true;
  const double now = monotonic_seconds();
  const auto batches = static_cast<double>(std::max<int64_t>(step - last_question_, 1));
  std::array<double, 2> answer = {stop() ? 1.0 : 0.0, step == 0 ? kQuestionSeconds : (now - asked_at_) / batches};
  rank_.group.all_reduce_max(answer, {"the evaluation"});
  last_question_ = step;
  next_question_ = step + std::clamp<int64_t>(static_cast<int64_t>(kQuestionSeconds / std::max(answer[1], 1e-6)), 1,
                                              kMostBatchesUnasked);
  asked_at_ = monotonic_seconds();
  return answer[0] == 0;
}

std::vector<EvaluationResult> Evaluator::run(std::span<const Weights> weights, const std::function<bool()>& stop,
                                             const BatchSink& on_batch) {
  const TraceScope span("evaluation");
  std::vector<Sums> sums(weights.size());
  next_question_ = last_question_ = 0;
  for (int64_t step = 0; step < steps_; ++step) {
    rank_.watchdog.progress(RunPhase::evaluate, step);
    if (!all_go_on(step, stop)) return {};
    const Batch batch = upload_.next(loader_);
    const ExternalInputs placed = upload_.place(rank_.stream, batch);
    for (size_t i = 0; i < weights.size(); ++i) {
      Arenas arenas = rank_.model.evaluation_arenas(weights[i]);
      arenas.external = placed;
      const std::vector<float> logits = add_batch(rank_, batch, arenas, sums[i]);
      if (on_batch) on_batch(weights[i], batch, logits);
    }
  }
  const Timeout wait{"the evaluation"};
  std::vector<EvaluationResult> results;
  for (size_t i = 0; i < weights.size(); ++i) {
    auto& [loss_sum, counts, scores] = sums[i];
    rank_.group.all_reduce_sum(counts, wait);
    rank_.group.all_reduce_sum(std::span(&loss_sum, 1), wait);
    const auto& [examples, top1, top5] = counts;
    const double loss = examples ? loss_sum / static_cast<double>(examples) : 0;
    EvaluationResult& result =
        results.emplace_back(EvaluationResult{weights[i], examples, top1, top5, std::round(loss * 1e4) / 1e4});
    if (!has_two_classes(rank_.model)) continue;
    const double auc = area_under_curve({gather_values<float>(rank_.group, scores.positive, wait),
                                         gather_values<float>(rank_.group, scores.negative, wait)});
    result.auc = std::round(auc * 1e5) / 1e5;
  }
  return results;
}

void Evaluator::explain_large_loss(const EvaluationResult& result) {
  constexpr double kTimesGuessing = 5;
  const double guessing = std::log(static_cast<double>(rank_.config.model.classes));
  if (loss_explained_ || !(result.loss > kTimesGuessing * guessing)) return;
  // Only batch normalization has parameters that are not trained (running statistics).
  if (std::ranges::all_of(rank_.model.parameters().all(), &Parameter::trained)) return;
  loss_explained_ = true;
  if (!rank_.group.is_root()) return;
  log_info(
      "that loss is far above {:.1f}, which guessing has: usual early in a run, while batch normalization's running "
      "statistics lag behind the weights (docs/watching.md); later it means that training diverges",
      guessing);
}

}  // namespace lockstep
