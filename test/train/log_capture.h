// What a test's code logs.
#pragma once

#include <string>

#include "lockstep/base/log.h"
#include "lockstep/io/file.h"
#include "test/scratch.h"

namespace lockstep {

// From construction to destruction every line that this process logs also goes to a file of its own. One at a time.
class LogCapture {
 public:
  LogCapture() { set_log_file(folder_ / "log"); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  ~LogCapture() { set_log_file({}); }

  std::string text() const { return read_text_file(folder_ / "log", ExitCode::internal); }

 private:
  ScratchFolder folder_;
};

}  // namespace lockstep
