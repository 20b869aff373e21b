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
  size_t max_jobs = 100000;  // that wait; jobs beyond either bound are dropped, counted and reported
  size_t max_bytes = size_t{64} << 20;
  double slow_seconds = 60;  // an operation that takes longer is reported once
};

struct FileJob {
  std::function<void()> run;  // owns what it uses; its exceptions are logged as warnings
  size_t bytes = 0;           // held until it has run
  bool required = false;      // never dropped: later jobs rely on it
};

// Used by one thread, in which neither post() nor finish() touches a file. The worker's own thread starts with the
// first job.
class FileWorker {
 public:
  explicit FileWorker(FileWorkerOptions options);
  // Waits a few seconds for the posted jobs. If the disk still blocks the thread, it is left behind, which is logged.
  ~FileWorker();
  FileWorker(const FileWorker&) = delete;
  FileWorker& operator=(const FileWorker&) = delete;

  // Runs the job after all those posted before. Returns false if there was no room and it was dropped.
  bool post(FileJob job);

  // Waits until all posted jobs have run. Returns false if that takes longer. Reports the total of dropped jobs.
  bool finish(double seconds);

  int64_t dropped() const;

 private:
  class Queue;
  std::shared_ptr<Queue> queue_;
  std::optional<FileThread> thread_;
};

}  // namespace lockstep
