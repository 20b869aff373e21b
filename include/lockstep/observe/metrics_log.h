// metrics.jsonl: one JSON object a line, appended over restarts without repeating a step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/io/file.h"

namespace lockstep {

// Rank 0 only, on the thread for the run's files. Each line is written whole with one write(2). Trouble with the file
// is a warning: metrics never stop a run. Lines that are no rows of a run are never touched. A file that is deleted or
// moved meanwhile is begun again, with its directory.
class MetricsLog {
 public:
  // Opens `path` for appending. What an earlier run left is mended first: torn rows are cut off, and rows of
  // steps after `resumed_step` are dropped (the run repeats those steps). Empty path: nothing is written.
  MetricsLog(std::string path, int64_t resumed_step);
  MetricsLog() = default;  // writes nothing
  MetricsLog(MetricsLog&&) = default;
  MetricsLog& operator=(MetricsLog&&) = default;

  // The run goes back to `step`: rows of later steps are dropped.
  void go_back(int64_t step);

  // Drops the rows of this kind ("eval") and step, which are about to be written again; false: there are none.
  bool drop(std::string_view kind, int64_t step);

  // `row`: one JSON object, without a line break.
  void write(std::string_view row);

 private:
  template <class Keep>
  int64_t mend_and_open(const Keep& keep);
  void open();
  void reopen_if_gone();

  std::string path_;
  FileDescriptor file_;
  bool torn_ = false;  // the file does not end in a line break
};

}  // namespace lockstep
