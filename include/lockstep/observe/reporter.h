// The reports of a run: log lines, the progress bar, metrics.jsonl, and TensorBoard events.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/writer.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/config/config.h"
#include "lockstep/data/loader.h"
#include "lockstep/io/file_worker.h"
#include "lockstep/observe/evaluation_result.h"
#include "lockstep/observe/event_file.h"
#include "lockstep/observe/metrics_log.h"
#include "lockstep/observe/progress_line.h"
#include "lockstep/observe/prometheus.h"
#include "lockstep/observe/run_summary.h"
#include "lockstep/observe/slowdown.h"
#include "lockstep/observe/step_table.h"
#include "lockstep/observe/step_timer.h"

namespace lockstep {

struct ReporterOptions {
  int64_t every_steps = 10;
  std::string directory;     // directory of the run, for messages
  std::string jsonl;         // path of metrics.jsonl; empty: not written
  std::string events;        // directory of TensorBoard's event files; empty: not written
  std::string prometheus{};  // path of the file for Prometheus; empty: not written
  int64_t resumed_step = 0;  // rows of later steps in an existing file are removed
  // Called on rank 0 for each interval instead of printing the log line.
  std::function<void(const ProgressRow&)> on_interval{};
  // Called on rank 0 with the table of the traced steps' time, instead of printing and writing it.
  std::function<void(const StepTable&)> on_step_table{};
  int bar_columns = 0;  // width of a progress bar that replaces the log lines; 0: print log lines
  bool bar_colored = false;
  double slow_disk_seconds = 60;  // a file operation that takes longer is reported
};

// Facts about a run and its program.
struct RunFacts {
  std::string version, commit;  // of the program
  const Config& configuration;
};

// A data set with skipped bad records.
struct SkippedData {
  std::string data;              // "data.train"
  DataSource::LeftOut left_out;  // files that could not be read to the end
};

// Every rank owns one, but only rank 0's writes anything. Used by the thread that runs the step; files are written by a
// thread of its own. Calls marked as collective must be made by all ranks.
class Reporter {
 public:
  Reporter(ProcessGroup& group, ReporterOptions options);

  // Writes the first row of this process to metrics.jsonl, and the configuration to the event files.
  void start(int64_t step, const RunFacts& facts);

  // Returns whether interval() is due after this step.
  bool due(int64_t step) const { return step % options_.every_steps == 0; }

  // Collective. Reports one log interval: completes the row with times from `timer`, finds the slowest rank, and
  // prints.
  void interval(ProgressRow row, const StepTimer& timer);
  // Returns whether watch_speed() is due after `steps` steps of this process.
  bool watch_due(int64_t steps) const { return slowdown_.due(steps); }
  // Collective. Logs a warning when the run has become permanently slower, with the part of the step and the rank that
  // cause it (SlowdownWatch). `straggler_wait_seconds` is that of CommStatistics.
  void watch_speed(int64_t step, const StepTotals& totals, std::span<const double> straggler_wait_seconds);
  // Logs where the time of the traced steps went and writes it to profile.json.
  void step_table(StepTable table);
  // Reports the results of an evaluation, one per kind of weights.
  void evaluation(int64_t step, double epoch, std::span<const EvaluationResult> results);
  // Returns whether this rank writes event files; only then histogram() has an effect.
  bool writes_events() const { return group_.is_root() && !options_.events.empty(); }
  // Writes a histogram of the values of one trained parameter for TensorBoard.
  void histogram(int64_t step, const std::string& parameter, std::span<const float> values);
  // Reports a finished save. A failed one becomes the event "save failed".
  void checkpoint(const SaveResult& result);
  // Writes an event to metrics.jsonl; `what` is its name ("resumed", "skipped").
  void event(int64_t step, const std::string& what, const std::string& text);
  // Collective. Reports what data.bad_records = "skip" has skipped on all ranks: each record by name, the total, and
  // the files that could not be read to the end. Prefetched batches count even if the run ended before it used them.
  void bad_records(int64_t step, const SkippedData& skipped, std::span<const BadRecordNote> notes);
  // Reports that the run rolls back to `step`, and removes the reports of later steps. `text` gives the reason.
  void back_to(int64_t step, const std::string& text);
  // Removes the progress bar, reports the time split of the whole run, and waits until all files are written. Throws
  // Error(checkpoint) on rank 0 if that takes longer than `seconds`.
  void close(double seconds);

  // The thread that writes rank 0's small files, so that no step waits for a disk.
  FileWorker& files() { return files_; }

 private:
  // Only the file thread uses these. A log that could not be opened writes nothing.
  struct Logs {
    MetricsLog metrics;
    std::string events_directory;
    int64_t resumed_step = 0;
    std::map<std::string, EventFile, std::less<>> events;  // by their subdirectory

    // Returns the events of a subdirectory, which is created if needed.
    EventFile& events_in(const std::string& subdirectory);
  };
  struct EvaluationRecords {
    int64_t step = 0;
    std::vector<std::string> rows;
    std::vector<std::pair<std::string, std::string>> events;  // subdirectory and event
  };
  void write_row(std::string row);
  void write_event(const std::string& subdirectory, std::string event);
  void write_prometheus();
  void write_evaluation(EvaluationRecords records);
  std::vector<RankTimes> gather(const RankTimes& mine);  // collective; returns the times of every rank

  ProcessGroup& group_;
  ReporterOptions options_;
  SlowdownWatch slowdown_;
  RunSummary summary_;
  int64_t last_step_ = 0;
  int64_t failed_saves_ = 0;
  PrometheusPage page_;
  FileWorker files_;
  std::shared_ptr<Logs> logs_;
};

}  // namespace lockstep
