// One folder belongs to one run: a lock file with the owner's host, process and a heartbeat. flock is not to be
// trusted on network file systems, so ownership is the file itself, made by exclusive creation.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep {

struct RunLockOptions {
  double heartbeat_seconds = 10;
  double stale_seconds = 60;  // without a heartbeat for so long, the owner is taken for dead
};

// Holds the folder from construction to destruction, on rank 0. Thread-safe; its own thread writes the heartbeat.
class RunLock {
 public:
  // Makes the folder if need be. A lock whose owner is a dead process of this machine, or whose heartbeat is stale, is
  // taken over with a warning; where that takes watching the heartbeat, this waits up to stale_seconds. Throws
  // Error(config) naming host and process of a living owner, Error(checkpoint) when the folder cannot be written.
  explicit RunLock(const std::string& directory, const RunLockOptions& options = {});
  ~RunLock();  // deletes the file if it is still ours
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // False once another run has taken the folder over (this process was suspended for long, say): stop saving.
  bool held() const;

 private:
  void acquire();
  bool try_create();
  bool refresh();  // one heartbeat; false: the file is another's
  bool refresh_or_log() noexcept;
  void beat();

  const std::string path_;
  const RunLockOptions options_;
  std::string identity_;  // all of the file but its heartbeat
  int64_t beats_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool held_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
