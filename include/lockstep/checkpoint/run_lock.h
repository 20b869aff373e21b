// One directory belongs to one run. The lock is a file that is created exclusively and contains the owner's host,
// process and a heartbeat, because flock is unreliable on network file systems.
#pragma once

#include <memory>
#include <string>

#include "lockstep/io/file_thread.h"

namespace lockstep {

struct RunLockOptions {
  double heartbeat_seconds = 10;
  double stale_seconds = 60;  // an owner without a heartbeat for this long is considered dead
};

// Rank 0 holds the directory from construction to destruction. Thread-safe. The lock has a thread of its own, which
// writes the heartbeat and creates the directory and the file again if somebody has deleted them.
class RunLock {
 public:
  // Creates the directory if necessary. Takes over, with a warning, a lock whose owner is a dead process of this
  // machine or whose heartbeat is stale; finding out the latter takes up to stale_seconds. Throws Error(config), which
  // names host and process of a living owner, or Error(checkpoint) if the directory cannot be written.
  explicit RunLock(const std::string& directory, const RunLockOptions& options = {});
  // Deletes the file if it is still ours. After a few seconds without an answer from the disk it gives up and logs a
  // warning.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Returns false once another run has taken over the directory, for instance after this process was suspended for a
  // long time. Nothing may be saved then. Does not wait for a disk.
  bool held() const;

 private:
  class Keeper;
  std::shared_ptr<Keeper> keeper_;
  FileThread thread_;
};

}  // namespace lockstep
