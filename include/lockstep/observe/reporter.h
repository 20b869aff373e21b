// What a run tells the world: log lines, the progress bar, metrics.jsonl, TensorBoard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/writer.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/data/loader.h"
#include "lockstep/io/file_worker.h"
#include "lockstep/observe/evaluation_result.h"
#include "lockstep/observe/event_file.h"
#include "lockstep/observe/metrics_log.h"
#include "lockstep/observe/progress_line.h"
#include "lockstep/observe/run_summary.h"
#include "lockstep/observe/slowdown.h"
#include "lockstep/observe/step_timer.h"

namespace lockstep {

struct ReporterOptions {
  int64_t every_steps = 10;
  std::string directory;     // of the run, for messages
  std::string jsonl;         // path; empty: none
  std::string events;        // folder of TensorBoard's event files; empty: none
  int64_t resumed_step = 0;  // rows of later steps in an existing file are dropped
  // Rank 0: told of each interval, in place of the log line.
  std::function<void(const ProgressRow&)> on_interval{};
  int bar_columns = 0;  // of a progress bar instead of log lines; 0: lines
  bool bar_coloured = false;
  double wait_seconds = 600;
  double slow_disk_seconds = 60;  // a file operation that takes longer is reported
};

// A data set of which bad records were skipped.
struct SkippedData {
  std::string data;  // "data.train"
  DataSource::LeftOut left_out;
};

// Every rank has one; only rank 0's writes. Calls marked collective are made by all ranks.
class Reporter {
 public:
  Reporter(ProcessGroup& group, ReporterOptions options);

  bool due(int64_t step) const { return step % options_.every_steps == 0; }

  // Collective. One log interval: completes the row from the timer, finds the slowest rank, prints.
  void interval(ProgressRow row, const StepTimer& timer);
  // Whether watch_speed() is due after so many steps of this process.
  bool watch_due(int64_t steps) const { return steps >= watch_at_; }
  // Collective. Says, once, when the run has become slower for good, and whose work it is. `straggler_wait_seconds`: of
  // the communicator, since it was made.
  void watch_speed(int64_t step, const StepTotals& totals, std::span<const double> straggler_wait_seconds);
  void evaluation(int64_t step, double epoch, std::span<const EvaluationResult> results);
  // Whether this rank writes event files, which histogram() is for.
  bool writes_events() const { return group_.is_root() && !options_.events.empty(); }
  // The values of one trained parameter, for TensorBoard.
  void histogram(int64_t step, const std::string& parameter, std::span<const float> values);
  // A save that has ended; one that failed is an event, \"save failed\".
  void checkpoint(const SaveResult& result);
  // Something a reader of metrics.jsonl should know ("resumed", "skipped").
  void event(int64_t step, const std::string& what, const std::string& text);
  // Collective. What data.bad_records = "skip" has skipped: each record by name, of all ranks together, with a total,
  // and what could not be read of the files. Batches prepared ahead count, whether or not the run got to them.
  void bad_records(int64_t step, const SkippedData& skipped, std::span<const BadRecordNote> notes);
  // The run goes back to `step`, for a reason.
  void back_to(int64_t step, const std::string& text);
  // Removes the bar, says where the time of the whole run went, and waits until everything is written. Throws
  // Error(checkpoint), on rank 0, when that takes longer than `seconds`.
  void close(double seconds);

  // Where rank 0's small files are written, so that no step waits for a disk.
  FileWorker& files() { return files_; }

 private:
  // What the thread for files alone uses. Logs that could not be opened write nothing.
  struct Logs {
    MetricsLog metrics;
    EventFile events;
  };
  struct EvaluationRecords {
    int64_t step = 0;
    std::vector<std::string> rows, events;
  };
  void write_row(std::string row);
  void write_event(std::string event);
  void write_evaluation(EvaluationRecords records);
  // Every rank's.
  std::vector<RankTimes> gather(const RankTimes& mine, const StragglerWait& wait = {});
  // Since the last call, over so many steps.
  StragglerWait longest_wait(std::span<const double> straggler_wait_seconds, double steps);

  ProcessGroup& group_;
  ReporterOptions options_;
  SlowdownWatch slowdown_;
  StepTotals watched_;  // up to the last window
  std::vector<double> watched_waits_;
  int64_t watch_at_ = steps_between_checks(1);
  RunSummary summary_;
  int64_t last_step_ = 0;
  FileWorker files_;
  std::shared_ptr<Logs> logs_;
};

}  // namespace lockstep
