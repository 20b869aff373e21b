#include "lockstep/train/progress.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/train/model_graphs.h"

namespace lockstep {
namespace {

// The names in the file, which are part of the checkpoint layout.
constexpr const char* kPosition = "position";
constexpr const char* kUpdates = "updates";
constexpr const char* kScale = "loss_scale";
constexpr const char* kScaleSteadySteps = "loss_scale_steady_steps";
constexpr const char* kBestScore = "best_score";
constexpr const char* kBestStep = "best_step";  // not in files of version 0.1.0
constexpr const char* kBestEvaluationScore = "best_evaluation_score";
constexpr const char* kBestEvaluationPosition = "best_evaluation_position";

bool scales_loss(const Config& config) { return compute_type(config) == DType::f16; }

}  // namespace

double first_loss_scale(int64_t batch) {
  constexpr uint64_t kMostHalf = 65504;
  return static_cast<double>(std::bit_floor(std::max<uint64_t>(kMostHalf / batch, 1)));
}

Progress first_progress(const Config& config, int64_t batch) {
  Progress progress;
  if (scales_loss(config)) progress.loss_scale.value = first_loss_scale(batch);
  return progress;
}

std::map<std::string, TrainingValue> to_training(const Progress& progress, const Config& config) {
  std::map<std::string, TrainingValue> training{{kPosition, progress.position}, {kUpdates, progress.updates}};
  if (progress.best.score >= 0) training[kBestScore] = progress.best.score;
  if (progress.best.step >= 0) training[kBestStep] = progress.best.step;
  if (progress.best_evaluation.score >= 0) {
    training[kBestEvaluationScore] = progress.best_evaluation.score;
    training[kBestEvaluationPosition] = progress.best_evaluation.position;
  }
  if (scales_loss(config)) {
    training[kScale] = progress.loss_scale.value;
    training[kScaleSteadySteps] = progress.loss_scale.steady_steps;
  }
  return training;
}

Progress progress_in(const CheckpointReader& file, const Config& config, int64_t batch) {
  const std::map<std::string, TrainingValue> training = file.training();
  Progress progress = first_progress(config, batch);
  progress.step = file.meta().step;
  const auto require_number = [&](const char* name, int64_t& to) {
    if (!read_number(training, name, to)) fail(ExitCode::checkpoint, "{}: /training/{} is missing", file.path(), name);
  };
  require_number(kPosition, progress.position);
  require_number(kUpdates, progress.updates);
  read_number(training, kBestScore, progress.best.score);
  read_number(training, kBestStep, progress.best.step);
  read_number(training, kBestEvaluationScore, progress.best_evaluation.score);
  read_number(training, kBestEvaluationPosition, progress.best_evaluation.position);
  if (scales_loss(config)) {
    read_number(training, kScale, progress.loss_scale.value);
    read_number(training, kScaleSteadySteps, progress.loss_scale.steady_steps);
  }
  return progress;
}

}  // namespace lockstep
