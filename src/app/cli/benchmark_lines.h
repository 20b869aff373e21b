// What a synthetic benchmark prints: tf_cnn_benchmarks' banner, step lines and total, character for character where
// they have a meaning here, so that scripts that read them go on working.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/cli/benchmark_flags.h"

namespace lockstep {

// Images a second over steps, as tf_cnn_benchmarks counts them.
struct ImageRate {
  double mean = 0;         // images of a step over the mean time of a step
  double uncertainty = 0;  // standard deviation of the steps' own rates / sqrt(steps)
  double jitter = 0;       // 1.4826 x the median distance of the steps' own rates from their median
};
ImageRate image_rate(std::span<const double> step_seconds, int64_t images_a_step);

// One bucket of the reduction.
struct BucketTime {
  int64_t gradients = 0;     // elements
  int64_t others = 0;        // behind them, float32 whatever comm.gradient_dtype says: moments, losses, flags
  double ready_seconds = 0;  // when it is complete, after the beginning of the step
};

// Steps in which no rank waits for another.
struct AloneSteps {
  std::vector<double> rank_seconds;  // of a step, by rank
  std::vector<BucketTime> buckets;   // of rank 0; none on a device, whose steps are only enqueued
};

struct BenchmarkFacts {
  int ranks = 1;
  int64_t batch = 1;    // of one rank
  int64_t samples = 1;  // of an epoch
  bool gpu = false;
  bool imagenet = true;  // the shape of the data: else CIFAR-10
};

// Rank 0's. Steps are told in order, the warm-up's first.
class BenchmarkLines {
 public:
  BenchmarkLines(const BenchmarkOptions& options, const BenchmarkFacts& facts);

  std::vector<std::string> banner() const;

  // Whether the line of step 1, 2, ... (the warm-up among them) is due to be shown.
  bool shown(int64_t step) const;
  // Counts a step; returns the lines to be printed after it.
  std::vector<std::string> step(int64_t step, double seconds, double total_loss);
  // What is printed before the first step that counts.
  std::vector<std::string> start() const;
  std::vector<std::string> total() const;

  void set_alone(AloneSteps alone) { alone_ = std::move(alone); }
  // Where several ranks were measured alone too: the rate of all together over the sum of their own.
  std::vector<std::string> efficiency() const;

  // One JSON document of it all: seconds of each timed step, and what is known of steps alone.
  std::string json() const;

 private:
  double alone_rate() const;

  const BenchmarkOptions options_;
  const BenchmarkFacts facts_;
  std::vector<double> seconds_;
  AloneSteps alone_;
};

}  // namespace lockstep
