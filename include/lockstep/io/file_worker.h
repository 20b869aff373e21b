// Small file operations of a run (logs, events, traces) on a thread of their own, so that no step waits for a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/io/file_thread.h"

namespace lockstep {

struct FileWorkerOptions {
  std::string directory;     // named in messages
  size_t max_jobs = 100000;  // that wait; what comes beyond either bound is dropped, counted and reported
  size_t max_bytes = size_t{64} << 20;
  double slow_seconds = 60;  // an operation that takes longer is reported once
};

struct FileJob {
  std::function<void()> run;  // owns what it uses; what it throws is logged as a warning
  size_t bytes = 0;           // held until it has run
  bool required = false;      // never dropped: later jobs rely on it
};

// Used by one thread, which neither post() nor finish() lets touch a file. The worker's own starts with the first job.
class FileWorker {
 public:
  explicit FileWorker(FileWorkerOptions options);
  // Gives what was posted a few seconds more; a thread that the disk still holds then is left behind, which is logged.
  ~FileWorker();
  FileWorker(const FileWorker&) = delete;
  FileWorker& operator=(const FileWorker&) = delete;

  // Runs the job after all those posted before. False: there was no room, and it was dropped.
  bool post(FileJob job);

  // Waits until everything posted has run; false: not within that time. What was dropped is then reported in total.
  bool finish(double seconds);

  int64_t dropped() const;

 private:
  class Queue;
  std::shared_ptr<Queue> queue_;
  std::optional<FileThread> thread_;
};

}  // namespace lockstep
