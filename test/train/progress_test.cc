#include "lockstep/train/progress.h"

#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

// Writes a checkpoint of `step` with these numbers and reads the progress back.
Progress stored(int64_t step, std::map<std::string, TrainingValue> training, const Config& config) {
  const ScratchDirectory directory;
  CheckpointContents contents = SmallModel().contents(step);
  contents.training = std::move(training);
  contents.arrays.clear();  // they point into the model
  write_file_atomically(directory / "a.h5", build_checkpoint(contents, "a").bytes(), {});
  return progress_in(CheckpointReader::open(directory / "a.h5"), config, 8);
}

}  // namespace

TEST_CASE("a checkpoint gives the progress back that it was written with") {
  Config config;
  config.train.precision = Precision::fp16;
  const Progress before{.step = 20,
                        .position = 7'000'000'000,
                        .updates = 18,
                        .loss_scale = {.value = 2048, .steady_steps = 7},
                        .best_evaluation = {.score = 0.75, .position = 6'000'000'000},
                        .best = {.score = 0.625, .step = 10}};
  const Progress after = stored(20, to_training(before, config), config);
  CHECK(after.step == 20);
  CHECK(after.position == 7'000'000'000);
  CHECK(after.updates == 18);
  CHECK(after.loss_scale.value == 2048);
  CHECK(after.loss_scale.steady_steps == 7);
  CHECK(after.best_evaluation.score == 0.75);
  CHECK(after.best_evaluation.position == 6'000'000'000);
  CHECK(after.best.score == 0.625);
  CHECK(after.best.step == 10);
}

TEST_CASE("only what a run has is stored, and what a file lacks is as at step 0") {
  Config config;
  const auto training = to_training({.position = 160, .updates = 20}, config);
  CHECK(training.size() == 2);
  CHECK(stored(20, training, config).best.step == -1);
  CHECK(stored(20, training, config).loss_scale.value == 1);
  config.train.precision = Precision::fp16;
  CHECK(stored(20, training, config).loss_scale.value == first_loss_scale(8));
}

TEST_CASE("the first loss scale is the largest power of two with which a sum over the batch fits into half precision") {
  CHECK(first_loss_scale(1) == 32768);
  CHECK(first_loss_scale(32) == 1024);
  CHECK(first_loss_scale(48) == 1024);
  CHECK(first_loss_scale(256) == 128);
  CHECK(first_loss_scale(100'000) == 1);
  for (int64_t batch = 1; batch <= 2048; ++batch) CHECK(first_loss_scale(batch) * static_cast<double>(batch) <= 65504);
}
