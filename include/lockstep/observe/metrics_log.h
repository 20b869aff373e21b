// metrics.jsonl: one JSON object per line. Restarts append to the file without repeating a step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/io/file.h"

namespace lockstep {

// Used by rank 0 only, on the file thread of the run (FileWorker). Each line is written with a single write(2). An I/O
// error only logs a warning, so metrics never stop a run. Lines that are not rows of a run are never changed. If the
// file is deleted or moved during the run, it is created again, with its directory.
class MetricsLog {
 public:
  // Opens `path` for appending. First removes torn rows of an earlier run, and rows of steps after `resumed_step`,
  // because the run repeats those steps. With an empty path, nothing is written.
  MetricsLog(std::string path, int64_t resumed_step);
  MetricsLog() = default;  // writes nothing
  MetricsLog(MetricsLog&&) = default;
  MetricsLog& operator=(MetricsLog&&) = default;

  // Removes the rows after `step`, because the run rolls back to it.
  void go_back(int64_t step);

  // Removes the rows of this kind ("eval") and step, which are about to be written again. Returns whether there were
  // any.
  bool drop(std::string_view kind, int64_t step);

  // Appends a row: one JSON object without line breaks.
  void write(std::string_view row);

 private:
  template <class Keep>
  int64_t clean_and_open(const Keep& keep);
  void open();
  void reopen_if_gone();

  std::string path_;
  FileDescriptor file_;
  bool torn_ = false;  // the file does not end with a line break
};

}  // namespace lockstep
