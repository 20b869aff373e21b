// What a run tells the world: log lines, the progress bar, metrics.jsonl, TensorBoard.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "lockstep/checkpoint/writer.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/process_group.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/event_file.h"
#include "lockstep/train/metrics_log.h"
#include "lockstep/train/program.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/step_timer.h"

namespace lockstep {

struct ReporterOptions {
  int64_t every_steps = 10;
  std::string jsonl;         // path; empty: none
  std::string events;        // folder of TensorBoard's event files; empty: none
  int64_t resumed_step = 0;  // rows of later steps in an existing file are dropped
  // Rank 0: told of each interval, in place of the log line.
  std::function<void(const ProgressRow&)> on_interval{};
  bool bar = false;  // draw a progress bar instead of log lines
  double wait_seconds = 600;
};

// Every rank has one; only rank 0's writes. Calls marked collective are made by all ranks.
class Reporter {
 public:
  Reporter(ProcessGroup& group, ReporterOptions options);

  bool due(int64_t step) const { return step % options_.every_steps == 0; }

  // Collective. One log interval: completes the row from the timer, finds the slowest rank, prints.
  void interval(ProgressRow row, const StepTimer& timer);
  void evaluation(int64_t step, double epoch, std::span<const EvaluationResult> results);
  // The values of each trained parameter, which nothing may be changing, for TensorBoard.
  void histograms(int64_t step, const Program& program);
  // A save that has ended; one that failed is an event, \"save failed\".
  void checkpoint(const SaveResult& result);
  // Something a reader of metrics.jsonl should know ("resumed", "skipped").
  void event(int64_t step, const std::string& what, const std::string& text);
  // Collective. What data.bad_records = "skip" has skipped of `data` ("data.train"): each record by name, of all ranks
  // together, with a total. Batches prepared ahead count, whether or not the run got to them.
  void bad_records(int64_t step, const std::string& data, std::span<const BadRecordNote> notes);
  // The run goes back to `step`, for a reason.
  void back_to(int64_t step, const std::string& text);
  // Removes the bar.
  void close();

 private:
  ProcessGroup& group_;
  ReporterOptions options_;
  MetricsLog metrics_;
  EventFile events_;
};

}  // namespace lockstep
