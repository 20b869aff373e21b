// What a person sees of a running training: the log line that scripts parse, and a bar on a terminal.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// One log interval, of all ranks together; seconds are means a step.
struct ProgressRow {
  int64_t step = 0;
  int64_t total_steps = 0;
  double epoch = 0;
  double loss = 0;  // mean of the steps whose loss was finite; NaN: of none, shown as "none"
  double learning_rate = 0;
  double examples_per_second = 0;
  double seconds_per_step = 0;
  double data_seconds = 0;         // waiting for the loader
  double compute_seconds = 0;      // forward, backward, update
  double reduce_seconds = 0;       // waiting for the reduction: the part that computing did not hide
  double save_seconds = 0;         // waiting for the copy of a snapshot
  double queue_depth = 0;          // batches that lay ready when one was asked for
  std::string slowest_rank;        // "3@node7"; empty with one rank
  double slowest_lag_seconds = 0;  // its own work beyond the median rank's
};

// "2026-11-27 21:43:10.123456: step 110, loss = 0.85 (354.3 examples/sec; 0.361 sec/batch) [data 0.001 compute ...]"
std::string training_line(const std::string& timestamp, const ProgressRow& row);

// "step 110/1000 [=====>     ] 354.3 examples/sec loss 0.85 ETA 0:05:21 [data 0 compute 94 reduce 5 save 1 %]", less
// than `width` columns: the time split goes first where there is no room. Coloured, what is done is green.
std::string progress_bar(const ProgressRow& row, int width, bool coloured = false);

}  // namespace lockstep
