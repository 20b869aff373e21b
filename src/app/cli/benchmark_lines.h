// The output of a synthetic benchmark: the banner, step lines and total of tf_cnn_benchmarks. Lines that have a meaning
// here are identical character for character, so that scripts that parse them keep working.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/cli/benchmark_flags.h"

namespace lockstep {

// Images per second over several steps, computed as in tf_cnn_benchmarks.
struct ImageRate {
  double mean = 0;         // images per step / mean time of a step
  double uncertainty = 0;  // standard deviation of the rates of single steps / sqrt(steps)
  double jitter = 0;       // 1.4826 x the median absolute deviation of the rates of single steps
};
ImageRate image_rate(std::span<const double> step_seconds, int64_t images_a_step);

// One bucket of the all-reduce.
struct BucketTime {
  int64_t gradients = 0;     // number of gradient elements
  int64_t others = 0;        // elements after them (moments, losses, flags), always float32
  double ready_seconds = 0;  // when the bucket is complete, measured from the start of the step
};

// The times of steps in which no rank waits for another.
struct AloneSteps {
  std::vector<double> rank_seconds;  // seconds per step, by rank
  std::vector<BucketTime> buckets;   // of rank 0; empty on a GPU, where steps are only enqueued
};

struct BenchmarkFacts {
  int ranks = 1;
  int64_t batch = 1;    // samples per rank
  int64_t samples = 1;  // samples per epoch
  bool gpu = false;
  bool imagenet = true;  // the data have the shape of ImageNet; otherwise of CIFAR-10
};

// Used by rank 0 only. Steps must be added in order, starting with the warm-up.
class BenchmarkLines {
 public:
  BenchmarkLines(const BenchmarkOptions& options, const BenchmarkFacts& facts);

  std::vector<std::string> banner() const;

  // Returns whether the line of this step is printed. Steps count from 1, including the warm-up.
  bool shown(int64_t step) const;
  // Adds a step and returns the lines that are printed after it.
  std::vector<std::string> step(int64_t step, double seconds, double total_loss);
  // Returns the lines that are printed before the first timed step.
  std::vector<std::string> start() const;
  std::vector<std::string> total() const;

  void set_alone(AloneSteps alone) { alone_ = std::move(alone); }
  // If ranks were also measured alone, returns the scaling efficiency: the rate of all ranks together divided by the
  // sum of their rates alone.
  std::vector<std::string> efficiency() const;

  // Returns all results as one JSON document: the seconds of each timed step, and the times of steps alone.
  std::string json() const;

 private:
  double alone_rate() const;

  const BenchmarkOptions options_;
  const BenchmarkFacts facts_;
  std::vector<double> seconds_;
  AloneSteps alone_;
};

}  // namespace lockstep
