// metrics.jsonl: one JSON object a line, appended over restarts without repeating a step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Rank 0 only, one thread. Each line is written whole with one write(2). Trouble with the file is a warning: metrics
// never stop a run.
class MetricsLog {
 public:
  // Opens `path` for appending. What an earlier run left is mended first: a torn last line is cut off, and rows of
  // steps after `resumed_step` are dropped (the run repeats those steps). Empty path: nothing is written.
  MetricsLog(std::string path, int64_t resumed_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // The run goes back to `step`: rows of later steps are dropped.
  void go_back(int64_t step);

  // Drops the rows of this kind ("eval") and step, which are about to be written anew; false: there are none.
  bool drop(std::string_view kind, int64_t step);

  // `row`: one JSON object, without a line break.
  void write(std::string_view row);

 private:
  void open();
  void close();

  std::string path_;
  int file_ = -1;
  bool torn_ = false;  // the last line could not be written whole
};

}  // namespace lockstep
