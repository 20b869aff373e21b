// What a test's code logs.
#pragma once

#include <iostream>
#include <optional>
#include <string>

#include "lockstep/base/log.h"
#include "lockstep/io/file.h"
#include "test/redirected.h"
#include "test/scratch.h"

namespace lockstep {

// From construction to destruction everything that this process prints goes to a file, and then where it belongs: a
// failed check must not vanish. One at a time.
class LogCapture {
 public:
  LogCapture() {
    std::cout.flush();
    for (std::optional<Redirected>& stream : streams_) {
      stream.emplace(&stream == streams_ ? STDOUT_FILENO : STDERR_FILENO, directory_ / "log");
    }
  }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  ~LogCapture() {
    std::cout.flush();
    for (std::optional<Redirected>& stream : streams_) stream.reset();
    std::cout << read_file(directory_ / "log") << std::flush;
  }

  std::string text() const { return read_file(directory_ / "log"); }

 private:
  ScratchDirectory directory_;
  std::optional<Redirected> streams_[2];
};

}  // namespace lockstep
