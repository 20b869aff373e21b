// The progress output of a training run: the log line, which scripts parse, and the progress bar for terminals.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// One log interval. Losses and examples are those of all ranks together; seconds are means per step.
struct ProgressRow {
  int64_t step = 0;
  int64_t total_steps = 0;
  double epoch = 0;
  double loss = 0;  // mean over the steps with a finite loss; NaN if there were none, shown as "none"
  double learning_rate = 0;
  double examples_per_second = 0;
  double seconds_per_step = 0;
  double data_seconds = 0;         // waiting for the loader
  double compute_seconds = 0;      // forward, backward, update
  double reduce_seconds = 0;       // waiting for the all-reduce, as far as computation did not hide it
  double save_seconds = 0;         // waiting for the copy of a snapshot
  double queue_depth = 0;          // mean number of prefetched batches when one was requested
  std::string slowest_rank;        // "3@node7"; empty with one rank
  double slowest_lag_seconds = 0;  // how much longer its own work takes than that of the median rank
};

// Returns "2026-11-27 21:43:10.123456: step 110, loss = 0.85 (354.3 examples/sec; 0.361 sec/batch) [data 0.001 compute
// ...]"
std::string training_line(const std::string& timestamp, const ProgressRow& row);

// Returns "step 110/1000 [=====>     ] 354.3 examples/sec loss 0.85 ETA 0:05:21 [data 0 compute 94 reduce 5 save 1 %]"
// in less than `width` columns. If there is not enough room, the time split is left out first. With `colored`, the
// completed part of the bar is green.
std::string progress_bar(const ProgressRow& row, int width, bool colored = false);

}  // namespace lockstep
