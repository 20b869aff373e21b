#include "lockstep/train/evaluator.h"

#include <array>

namespace lockstep {
namespace {

LoaderOptions evaluation_options(const EvaluatorParts& parts, LoaderOptions options) {
  options.training = false;
  options.rank = parts.group.rank();
  options.world_size = parts.group.size();
  options.batch_size = parts.program.batches().evaluation;
  options.accumulate = 1;
  return options;
}

// Sums of one pass on this rank.
struct Sums {
  double loss = 0;
  std::array<int64_t, 3> counts{};  // examples, top1, top5
};

void add_batch(const EvaluatorParts& parts, const Batch& batch, Weights weights, Sums& sums) {
  const Executable& e = parts.program.evaluation();
  Arenas arenas = parts.program.evaluation_arenas(weights);
  constexpr std::array<int32_t, 4> kNoStep{};
  arenas.external = {batch.images, batch.labels, batch.weights, kNoStep.data()};
  e.forward(parts.stream, arenas);
  const LossHead& head = e.graph().losses.front();
  float loss = 0;
  std::array<int32_t, 2> correct{};
  parts.backend.copy(parts.stream, &loss, e.address(head.loss, arenas), sizeof loss);
  parts.backend.copy(parts.stream, correct.data(), e.address(head.correct, arenas), sizeof correct);
  parts.stream.wait();
  sums.loss += loss;
  for (int64_t i = 0; i < batch.size; ++i) sums.counts[0] += batch.weights[i] > 0;
  sums.counts[1] += correct[0];
  sums.counts[2] += correct[1];
}

}  // namespace

Evaluator::Evaluator(const EvaluatorParts& parts, LoaderOptions options, double wait_seconds)
    : parts_(parts),
      loader_(parts.data, evaluation_options(parts, std::move(options))),
      steps_(evaluation_steps(parts.data.size(), parts.group.size(), parts.program.batches().evaluation)),
      wait_seconds_(wait_seconds) {}

std::vector<EvaluationResult> Evaluator::run(std::span<const Weights> weights) {
  std::vector<Sums> sums(weights.size());
  for (int64_t step = 0; step < steps_; ++step) {
    parts_.watchdog.progress(RunPhase::evaluate, step);
    const Batch batch = loader_.next();
    for (size_t i = 0; i < weights.size(); ++i) add_batch(parts_, batch, weights[i], sums[i]);
  }
  std::vector<EvaluationResult> results;
  for (size_t i = 0; i < weights.size(); ++i) {
    parts_.group.sum(sums[i].counts, {"the evaluation", wait_seconds_});
    parts_.group.sum(std::span(&sums[i].loss, 1), {"the evaluation", wait_seconds_});
    const auto& [examples, top1, top5] = sums[i].counts;
    results.push_back({weights[i], examples, top1, top5, examples ? sums[i].loss / static_cast<double>(examples) : 0});
  }
  return results;
}

}  // namespace lockstep
